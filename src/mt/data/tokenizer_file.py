"""Loading of tokenizer files that may come from elsewhere: checked before the library acts on them.

The library supports much that our tokenizers never do, and panics on some nonsensical settings.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from mt.errors import InputError
from mt.text.lines import explain_read_errors


def load_tokenizer(path: Path, untrained: Tokenizer, specials: Sequence[str]) -> Tokenizer:
    """Load a tokenizer that differs from `untrained` in its vocabulary and merges only.

    Its first ids must be `specials`. Raises InputError if the JSON file is missing or is not such a tokenizer.
    """
    try:
        with explain_read_errors(path):
            content = path.read_text(encoding="utf-8")
        state = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a tokenizer file: {str(error)[:200]}") from None
    if not isinstance(state, dict):
        raise InputError(f"{path}: not a tokenizer file")
    if state.get("added_tokens") or state.get("truncation") or state.get("padding"):
        raise InputError(f"{path}: it matches special tokens in text, truncates or pads, which is not supported")
    model = state.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise InputError(f"{path}: not a tokenizer file: it has no model with a vocabulary")
    learned: dict[str, Any] = {"vocab": {}, "merges": []}
    if not _equivalent(state | {"model": model | learned}, json.loads(untrained.to_str())):
        raise InputError(f"{path}: its text processing differs from this program's tokenizers")
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library raises plain Exception for anything it cannot parse
        raise InputError(f"{path}: not a tokenizer file: {str(error)[:200]}") from None
    if [tokenizer.id_to_token(i) for i in range(len(specials))] != list(specials):
        raise InputError(f"{path}: ids 0 to {len(specials) - 1} must be {', '.join(specials)}")
    if sorted(model["vocab"].values()) != list(range(tokenizer.get_vocab_size())):
        raise InputError(f"{path}: the ids of its pieces are not 0 to {tokenizer.get_vocab_size() - 1}")
    return tokenizer


def _equivalent(a: Any, b: Any) -> bool:
    """Compare two settings; one that is off may be absent, since other versions of the library may lack it."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_equivalent(a.get(key), b.get(key)) for key in a.keys() | b.keys())
    if isinstance(a, list) and isinstance(b, list) and b:
        return len(a) == len(b) and all(map(_equivalent, a, b))
    return bool(a == b) or not (a or b)
