"""Language codes."""

import re
from collections.abc import Sequence
from functools import cache

from mt.errors import InputError


@cache
def base_language(code: str) -> str:
    """zh of zh, zh-Hans, zh_TW or ZH."""
    return re.split("[-_]", code.lower())[0]


def chosen_language(languages: Sequence[str], chosen: str | None) -> str:
    """The target language that is meant of those a model has.

    Args:
        languages: the model's.
        chosen: one of them; None is the only one.

    Raises:
        InputError: it is none of them, or none is named of several.
    """
    if chosen is None and len(languages) == 1:
        return languages[0]
    if chosen is None or chosen not in languages:
        what = "which of them is not said" if chosen is None else f"not into {chosen}"
        raise InputError(
            f"the model translates into {', '.join(languages)}; {what}", f"choose with --to {languages[0]}"
        )
    return chosen
