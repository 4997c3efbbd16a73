"""Which sentences are in another language than they should be, as far as that can be told."""

from functools import cache
from importlib.util import find_spec

from mt.text.language_id import Detector
from mt.text.languages import base_language

_LETTERS, _SYLLABLES = 40, 15  # fewer tell too little, in an alphabet and in what stands for syllables or words
_DENSE = frozenset({"zh", "yue", "ja", "ko"})
_ENOUGH = 1000  # characters
_SURE, _RULED_OUT = 80.0, 2.0  # percent: what the other language has at least, and the expected one at most

# Languages that are often taken for one another; between those of one group nothing is said.
_ALIKE = tuple(
    frozenset(group.split())
    for group in (
        "no nb nn da sv",
        "hr bs sr sh me",
        "id ms jv su",
        "gl pt es ast an ca oc",
        "cs sk",
        "mk bg sr",
        "ru uk be rue",
        "hi mr ne sa",
        "fa ps ur ar ug",
        "zh yue wuu ja",
        "xh zu",
        "lv ltg",
        "az tr tk",
        "kk ky tt ba",
        "nl af li",
        "de lb",
        "fr wa oc",
        "en sco",
        "bn as",
        "qu ay",
        "tl fil",
    )
)


def detectable(language: str) -> bool:
    """Whether a language can be told from others."""
    return _is_there() and _detector(language).supports(language)


def why_not() -> str:
    """Why a language is not `detectable`."""
    return "py3langid does not know it" if _is_there() else "py3langid is not installed"


def _is_there() -> bool:
    return find_spec("py3langid") is not None


def other_language(text: str, expected: str) -> str:
    """Which language a text is in instead of the one that is expected; empty where that is not clear.

    Args:
        text: a sentence; nothing is said of short ones.
        expected: one that is `detectable`.
    """
    base = base_language(expected)
    if sum(map(str.isalpha, text)) < (_SYLLABLES if base in _DENSE else _LETTERS):
        return ""
    detector, text = _detector(expected), text[:_ENOUGH]
    found, share = detector.classify(text)
    if found == base or share < _SURE or any({found, base} <= group for group in _ALIKE):
        return ""
    if dict(detector.rank(text)).get(base, 0.0) > _RULED_OUT:
        return ""
    return f"{found}, {share:.0f} %"


@cache
def _detector(language: str) -> Detector:
    return _common() if _common().supports(language) else Detector([language])


@cache
def _common() -> Detector:
    return Detector([])
