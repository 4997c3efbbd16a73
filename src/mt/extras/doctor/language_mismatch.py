"""Detection of sentences in another language than expected."""

from functools import cache
from importlib.util import find_spec

from mt.text.language_id import Detector
from mt.text.languages import base_language

_MIN_LETTERS, _MIN_SYLLABLES = 40, 15  # shorter sentences are skipped; in an alphabet, and in a syllabic script
_SYLLABIC = frozenset({"zh", "yue", "ja", "ko"})
_MAX_CHARACTERS = 1000
_MIN_CONFIDENCE, _MAX_EXPECTED = 80.0, 2.0  # percent: at least for the detected language, at most for the expected

# Languages that are easily confused: a detection within one group is no finding.
_CONFUSABLE = tuple(
    frozenset(group.split())
    for group in (
        "no nb nn da sv, hr bs sr sh me, id ms jv su, gl pt es ast an ca oc, cs sk, mk bg sr, ru uk be rue, hi mr ne "
        "sa, fa ps ur ar ug, zh yue wuu ja, xh zu, lv ltg, az tr tk, kk ky tt ba, nl af li, de lb, fr wa oc, en sco, "
        "bn as, qu ay, tl fil"
    ).split(", ")
)


def undetectable(language: str) -> str:
    """Return why a language cannot be detected; "" if it can."""
    if find_spec("py3langid") is None:
        return "py3langid is not installed"
    return "" if _detector_for(language).supports(language) else "py3langid does not know it"


def other_language(text: str, expected: str) -> str:
    """Return the language and confidence of a sentence that is clearly not in the expected language, or ""."""
    base = base_language(expected)
    if sum(map(str.isalpha, text)) < (_MIN_SYLLABLES if base in _SYLLABIC else _MIN_LETTERS):
        return ""
    detector, text = _detector_for(expected), text[:_MAX_CHARACTERS]
    detected, confidence = detector.classify(text)
    if detected == base or confidence < _MIN_CONFIDENCE or any({detected, base} <= group for group in _CONFUSABLE):
        return ""
    if dict(detector.rank(text)).get(base, 0.0) > _MAX_EXPECTED:
        return ""
    return f"{detected}, {confidence:.0f} %"


def _detector_for(language: str) -> Detector:
    common = _detector()
    return common if common.supports(language) else _detector(language)


@cache
def _detector(*languages: str) -> Detector:
    return Detector(languages)
