"""Notes beside a price: the memory that is short, and the settings priced otherwise than stated."""

from __future__ import annotations

import runpy
import sys

import pytest
from command import steppe


def test_a_price_of_a_model_that_does_not_fit_says_so() -> None:
    ran = steppe("price", "--model", "llama-3.1-70b-instruct-fp8", "--hardware", "l40s", "--step", "1@100")
    assert ran.code == 0
    assert "Note: the model does not fit l40s" in " ".join(ran.out.split())
    fits = steppe("price", "--model", "llama-3.1-8b-instruct", "--hardware", "h100", "--step", "1@100")
    assert "Note:" not in fits.out


def test_the_catalog_module_wants_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["catalog"])
    monkeypatch.delitem(sys.modules, "steppe.models.catalog", raising=False)
    with pytest.raises(SystemExit, match=r"python -m steppe\.models\.catalog CONFIGS"):
        runpy.run_module("steppe.models.catalog", run_name="__main__")
