"""The configuration's JSON schema, with which editors complete keys and underline mistakes."""

import json
from typing import Any

from mt.config.schema import Config

TITLE = "mt configuration"


def json_schema() -> str:
    """Return the schema (draft 2020-12): every key with its type, bounds and description.

    Rules that span several keys are checked by `load_config` only.
    """
    schema = Config.model_json_schema()
    sections = schema["properties"]
    for name, section in sections.items():
        section.pop("default", None)  # all of a section's keys at once; each of them names its own
        if "$ref" in section and name not in schema["required"]:
            # `training:` with every key below it commented out is YAML for null.
            sections[name] = {"anyOf": [{"$ref": section.pop("$ref")}, {"type": "null"}], **section}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_clean(schema), "title": TITLE}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _clean(node: Any) -> Any:
    """Join the lines of descriptions, and drop pydantic's titles, which editors would show instead of them."""
    if isinstance(node, list):
        return [_clean(item) for item in node]
    if not isinstance(node, dict):
        return node
    cleaned = {}
    for key, value in node.items():
        if key == "description" and isinstance(value, str):
            cleaned[key] = " ".join(value.split())
        elif not (key == "title" and isinstance(value, str)):
            cleaned[key] = _clean(value)
    return cleaned
