"""`documents.md`: every key of every document, from the schemas, with its meaning from `document_keys.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from steppe.docgen.markdown import code, page, table
from steppe.docgen.notes import DocgenError
from steppe.documents.schema import SCHEMA_KINDS, json_schema

KEYS = Path(__file__).with_name("document_keys.yaml")

INTRODUCTION = """# Documents

Everything a deployment is made of is a document: YAML, one document a file, except that a file may hold a scenario and
its deployment one after the other, separated by `---`. Files that end in `.json` are read as JSON. Reading is strict:
an unknown key, a key written twice, a wrong type, a number out of range or an infinite one is an error, and one message
lists every problem with file, line and key. `steppe validate FILE...` checks without pricing.

The formats are those of the BLIS catalog and registry, so that a checkout of either can be pointed at (`catalog=`,
`registry=`); keys marked + are additions, and optional.

`steppe validate --schema KIND` prints a document's JSON Schema (draft 2020-12), for editors and other programs."""

TITLES = {
    "scenario": ("Scenario", "Which model on which cluster, with which coefficient sets."),
    "deployment": ("Deployment", "How the engine is run: pools of replicas, their widths and settings."),
    "graph": ("Model graph", "What one forward pass launches. Usually derived, `models/<name>/graph.yaml`."),
    "chip": ("Chip", "One GPU, `hardware/<name>.yaml`; its name is the file's."),
    "fabric": ("Network", "A network between nodes, `networks/<name>.yaml`; its name is the file's."),
    "storage": ("Storage devices", "Where KV blocks are offloaded to: one map in `devices/storage.yaml`, by name."),
    "coefficients": ("Coefficient set", "Numbers and fitted laws, `coefficients/<name>.yaml` or `.json`."),
    "workload": ("Workload", "A shape of requests a scenario may name."),
}


def documents() -> str:
    """The page of document formats. Raises DocgenError for a key without a meaning, or a meaning without a key."""
    meanings: dict[str, dict[str, str]] = yaml.safe_load(KEYS.read_text(encoding="utf-8"))
    parts = [INTRODUCTION]
    used: set[tuple[str, str]] = set()
    problems: list[str] = []
    for kind in SCHEMA_KINDS:
        schema = json_schema(kind)
        title, text = TITLES[kind]
        parts += [f"## {title}", f"{text} Schema: `steppe validate --schema {kind}`."]
        objects = {title: schema["additionalProperties"] if kind == "storage" else schema, **schema.get("$defs", {})}
        for name, described in objects.items():
            if "properties" not in described:
                continue
            if name != title:
                parts.append(f"### {name}")
                parts.append(described.get("description", "").split("\n\n")[0])
            known = meanings.get(name, {})
            for key in described["properties"]:
                used.add((name, key))
                if key not in known:
                    problems.append(f"{KEYS.name}: {name}.{key} has no meaning")
            parts.append(_keys(described, known))
    for name, keys in meanings.items():
        problems += [f"{KEYS.name}: {name}.{key} is no key of a document" for key in keys if (name, key) not in used]
    if problems:
        raise DocgenError("\n".join(problems))
    return page(*(part for part in parts if part))


def _keys(described: dict[str, Any], meanings: dict[str, str]) -> str:
    required = set(described.get("required", ()))
    rows = [
        (code(key), _type(value), "yes" if key in required else "", meanings.get(key, ""))
        for key, value in described["properties"].items()
    ]
    return table(("key", "type", "required", "meaning"), rows)


def _type(value: dict[str, Any]) -> str:
    """A schema's type as a reader says it."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[1]
        return "any" if name == "JsonValue" else f"[{name}](#{name.lower()})"
    if "const" in value:
        return code(str(value["const"]))
    if "anyOf" in value:
        kinds = [_type(each) for each in value["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return "one of " + ", ".join(code(str(each)) for each in value["enum"] if each != "")
    kind = value.get("type")
    if kind == "array":
        items = value.get("items") or {}
        pair = value.get("prefixItems")
        return f"[{', '.join(_type(each) for each in pair)}]" if pair else f"list of {_type(items)}"
    if kind == "object":
        inner = value.get("additionalProperties")
        return f"map to {_type(inner)}" if isinstance(inner, dict) else "map"
    return {"string": "text", "boolean": "true or false", "integer": "integer", "number": "number"}.get(
        str(kind), "any"
    ) + _bounds(value)


def _bounds(value: dict[str, Any]) -> str:
    least, above, most = (value.get(key) for key in ("minimum", "exclusiveMinimum", "maximum"))
    shown = []
    if least is not None:
        shown.append(f">= {least:g}")
    if above is not None:
        shown.append(f"> {above:g}")
    if most is not None and most < 2**31 - 1:
        shown.append(f"<= {most:g}")
    return f", {', '.join(shown)}" if shown else ""
