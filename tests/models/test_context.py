"""The longest sequence a config states: the smallest length, scaled where it is stated unscaled."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models import small

from steppe.errors import DocumentError
from steppe.models.config import Config
from steppe.models.context import context_length
from steppe.models.derive import derive

STATED = {"max_position_embeddings": 1000}


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({}, None),
        ({"n_positions": 512}, 512),
        ({**STATED, "seq_length": 800}, 800),
        ({**STATED, "seq_length": 800, "model_max_length": 4000}, 4000),
        ({**STATED, "rope_scaling": None}, 1000),
        ({**STATED, "rope_scaling": {"rope_type": "linear", "factor": 2.5}}, 2500),
        ({**STATED, "rope_scaling": {"type": "dynamic", "factor": 2}}, 2000),
        ({**STATED, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 1000),
        ({**STATED, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 1000),
        ({**STATED, "rope_scaling": {"factor": 8.0}}, 1000),
        ({**STATED, "rope_scaling": {"rope_type": "linear"}}, 1000),
        ({**STATED, "rope_scaling": "linear"}, 1000),
        ({**STATED, "rope_parameters": {"rope_type": "linear", "factor": 3}, "rope_scaling": {"factor": 9}}, 3000),
        (
            {
                **STATED,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default"},
                    "full_attention": {"rope_type": "linear", "factor": 8.0},
                },
            },
            8000,
        ),
        ({**STATED, "model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 1000),
    ],
)
def test_context_length(config: dict[str, Any], length: int | None) -> None:
    assert context_length(Config(config)) == length


def test_a_graph_states_the_length_where_its_config_does() -> None:
    graph = derive({**small.LLAMA, **STATED}, name="test")
    assert graph["global"]["max_position_embeddings"] == 1000
    assert "max_position_embeddings" not in derive(small.LLAMA, name="test")["global"]


def test_an_ill_typed_length_is_named() -> None:
    with pytest.raises(DocumentError, match="'seq_length' must be at least 1, not 0"):
        context_length(Config({"seq_length": 0}))
