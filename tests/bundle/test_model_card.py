"""The README of a model folder."""

import pytest

from config_helpers import SMALLEST
from mt.bundle.model_card import model_card
from mt.config import parse_config


@pytest.mark.parametrize(
    ("changes", "stack", "has_ctranslate2"),
    [
        (["model.encoder_layers=3", "model.decoder_layers=2"], "3 encoder and 2 decoder layers, d_model", True),
        (["model.architecture=decoder_only", "model.decoder_layers=5"], "One stack of 5 layers, d_model", False),
    ],
)
def test_it_names_what_the_folder_holds(changes: list[str], stack: str, has_ctranslate2: bool) -> None:
    facts = {"weights": "step 7 (last)", "steps": 7}
    card = model_card(parse_config(SMALLEST, "test", changes), facts, has_ctranslate2)
    assert stack in card
    assert "0 encoder" not in card
    assert ("`ctranslate2/`" in card) == has_ctranslate2
    assert "`model.safetensors`" in card
    assert "`MANIFEST.json`" in card
