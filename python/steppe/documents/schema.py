"""JSON Schemas of the documents as files spell them, for editors and other tools.

A schema holds what one key may be; rules between keys and between documents are the loader's.
"""

from __future__ import annotations

from typing import Any

from steppe.documents.base import Document
from steppe.documents.coefficients import CoefficientSet
from steppe.documents.deployment import Deployment
from steppe.documents.graph import ModelGraph
from steppe.documents.hardware import Chip, Fabric, StorageDevice
from steppe.documents.problems import suggestion
from steppe.documents.scenario import Scenario, Workload
from steppe.errors import DocumentError

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_COMMENTS: dict[str, Any] = {"^_comment(_.*)?$": {}}

SCHEMA_KINDS: dict[str, type[Document]] = {
    "scenario": Scenario,
    "deployment": Deployment,
    "graph": ModelGraph,
    "chip": Chip,
    "fabric": Fabric,
    "storage": StorageDevice,
    "coefficients": CoefficientSet,
    "workload": Workload,
}


def json_schema(kind: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a kind of document: see `SCHEMA_KINDS`. Raises DocumentError for another."""
    model = SCHEMA_KINDS.get(kind)
    if model is None:
        raise DocumentError(f"unknown kind '{kind}' of document; {suggestion(kind, SCHEMA_KINDS)}")
    schema = {"$schema": DIALECT, **model.model_json_schema(by_alias=True)}
    if model in (Chip, Fabric):
        schema["patternProperties"] = _COMMENTS
    elif model is StorageDevice:
        schema = _device_map(schema)
    elif model is CoefficientSet:
        _name_by_key(schema)
    return schema


def _device_map(schema: dict[str, Any]) -> dict[str, Any]:
    device = {key: value for key, value in schema.items() if key != "$schema"}
    device["properties"] = {**device["properties"], "name": {"type": "string"}}
    device["patternProperties"] = _COMMENTS
    return {
        "$schema": DIALECT,
        "title": "StorageDevices",
        "type": "object",
        "patternProperties": _COMMENTS,
        "additionalProperties": device,
    }


def _name_by_key(schema: dict[str, Any]) -> None:
    """A file writes a coefficient as `{name: {value: ...}}`; the model as `{name: ..., value: ...}`."""
    entry = schema["$defs"]["Coefficient"]
    del entry["properties"]["name"]
    entry["required"].remove("name")
    schema["properties"]["coefficients"]["items"] = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": {"$ref": "#/$defs/Coefficient"},
    }
