"""Language codes."""

import re


def base_language(code: str) -> str:
    """zh of zh, zh-Hans, zh_TW or ZH."""
    return re.split("[-_]", code.lower())[0]
