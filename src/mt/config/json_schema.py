"""The configuration's schema for editors, which then complete keys and underline what is wrong while one types."""

import json
from typing import Any

from mt.config.schema import Config

TITLE = "mt configuration"


def json_schema() -> str:
    """A JSON schema (draft 2020-12), made from the classes of the configuration.

    It knows every key, its type, its bounds and what it means. Rules that span several keys are for `load_config`.
    """
    schema = Config.model_json_schema()
    sections = schema["properties"]
    for name, section in sections.items():
        section.pop("default", None)  # all of a section's keys at once; each of them names its own
        if "$ref" in section and name not in schema["required"]:
            # `training:` with every key below it commented out is YAML for null.
            sections[name] = {"anyOf": [{"$ref": section.pop("$ref")}, {"type": "null"}], **section}
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_titles(schema), "title": TITLE}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _without_titles(node: Any) -> Any:
    """Without the titles that pydantic makes of names, which editors would show instead of the descriptions."""
    if isinstance(node, dict):
        return {
            key: _without_titles(value)
            for key, value in node.items()
            if not (key == "title" and isinstance(value, str))
        }
    return [_without_titles(item) for item in node] if isinstance(node, list) else node
