"""Rules about language tags and languages: combinations that a model could not learn."""

import pytest

from config_helpers import SMALLEST, refusal
from mt.config import parse_config

EPOCHS = "training.bidirectional_epochs"
TWO_TARGETS = (
    "data.target_lang=[de, fr]",
    "data.train=[{source: a, target: b, target_lang: de}, {source: a, target: c, target_lang: fr}]",
)


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        (("model.target_tag=target", "tokenizer.shared=false"), "model.target_tag", "set tokenizer.shared: true"),
        (("model.target_tag=none", *TWO_TARGETS), "model.target_tag", "which target language is wanted"),
        (("augmentation.terms=0.3", "data.source_lang=zh"), "augmentation.terms", "zh is written without"),
        (("augmentation.terms=0.3", "data.target_lang=jpn_Jpan"), "augmentation.terms", "jpn_Jpan is written without"),
        ((f"{EPOCHS}=2", *TWO_TARGETS), EPOCHS, "is for one target language"),
        ((f"{EPOCHS}=2", "augmentation.terms=0.3"), EPOCHS, "the tags of augmentation.terms"),
        ((f"{EPOCHS}=2", "model.target_tag=target"), EPOCHS, "the tags of model.target_tag"),
        ((f"{EPOCHS}=2", "model.source_format=<s> lang text </s>"), EPOCHS, "the tags of model.source_format"),
    ],
)
def test_combinations_that_cannot_be_learned(changes: tuple[str, ...], key: str, words: str) -> None:
    count, message = refusal(SMALLEST, *changes).splitlines()
    assert count.startswith("1 problem")
    assert f": {key}: " in message
    assert words in message


@pytest.mark.parametrize(
    "changes",
    [
        ("model.target_tag=none",),
        ("model.target_tag=target",),
        ("augmentation.terms=0", "data.source_lang=zh"),
        (f"{EPOCHS}=2", "model.target_tag=none"),
    ],
)
def test_tags_just_within_the_rules(changes: tuple[str, ...]) -> None:
    parse_config(SMALLEST, "x.yaml", changes)
