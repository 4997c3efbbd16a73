"""Language identification."""

import pytest

from mt.text.language_id import Detector

PORTUGUESE = "O comboio para Lisboa parte amanh\u00e3 de manh\u00e3 da esta\u00e7\u00e3o velha."
CHINESE = "\u6211\u4eec\u660e\u5929\u65e9\u4e0a\u53bb\u5317\u4eac\u7684\u706b\u8f66\u7ad9\u3002"


@pytest.mark.parametrize(
    ("text", "source", "target"), [(PORTUGUESE, "pt_PT", "pt_BR"), (CHINESE, "zh_Hans", "zh_Hant")]
)
def test_a_source_that_shares_the_language_of_the_target_is_translated(text: str, source: str, target: str) -> None:
    detector = Detector([source, target, "en"])
    assert detector.source_of(text, ["en", source], target)[0] == source
    assert detector.source_of(text, ["en"], target)[0] == target
