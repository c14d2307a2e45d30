"""JSON Schemas: what loads is valid against them, what is plainly wrong is not."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from steppe.documents.schema import SCHEMA_KINDS, json_schema
from steppe.errors import DocumentError

from .conftest import CHIP, DEPLOYMENT, DEVICES, FABRIC, GRAPH, SCENARIO, SET

EXAMPLES: dict[str, Any] = {
    "scenario": SCENARIO,
    "deployment": DEPLOYMENT,
    "graph": GRAPH,
    "chip": CHIP,
    "fabric": FABRIC,
    "storage": {"_comment": "x", **DEVICES},
    "coefficients": SET,
    "workload": {"prompt": {"tokens": 1}, "output": {"tokens": 1}},
}


@pytest.mark.parametrize("kind", SCHEMA_KINDS)
def test_a_schema_admits_its_documents_and_no_unknown_key(kind: str) -> None:
    schema = json_schema(kind)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    validator.validate(EXAMPLES[kind])
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**EXAMPLES[kind], "surprise": 1})


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("chip", {**CHIP, "SMCount": 0}),
        ("chip", {**CHIP, "tflops_peak": 1}),
        ("storage", {"tape": {"read_bandwidth": 1}}),
        ("coefficients", {**SET, "coefficients": [{"a": {}, "b": {}}]}),
        ("coefficients", {**SET, "coefficients": [{"a": {"name": "a", **SET["coefficients"][0]["hbm_derate"]}}]}),
        ("graph", {**GRAPH, "global": {**GRAPH["global"], "weight_dtype": "fp6"}}),
        ("scenario", {**SCENARIO, "kind": "Deployment"}),
    ],
)
def test_a_schema_refuses_what_the_loader_refuses(kind: str, document: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema(kind)).validate(document)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(DocumentError, match="unknown kind 'grap' of document; did you mean graph"):
        json_schema("grap")
