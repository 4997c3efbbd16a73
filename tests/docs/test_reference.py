"""The reference pages: complete and current."""

import re
import sys
from pathlib import Path

from config_helpers import SECTIONS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))

import reference

ROOT = reference.DOCS.parent


def items(text: str) -> list[str]:
    """The items of a list, each on one line."""
    return [" ".join(item.split()) for item in text.split("\n* ")[1:]]


def test_the_reference_has_every_key_once_with_default_and_meaning() -> None:
    page = reference.configuration_page()
    for name, section in SECTIONS.items():
        keys = items(page.split(f"## {name}\n")[1].split("##")[0])
        for key, field in section.model_fields.items():
            (item,) = [item for item in keys if item.startswith(f"`{key}` (")]
            assert field.description
            assert field.description.endswith(".")
            assert item.endswith(f"): {field.description}")
    everything = "\n".join(items(page))
    for key in (
        "`n_heads` (whole number, ≥ 1; default `8`): ",
        "`norm` (`post`, `pre`; default `post`): ",
        "`patience` (whole number, null, ≥ 1; default `10`): ",
        "`betas` (list of 2 × number; default `[0.9, 0.98]`): ",
        "`test` (source, list of sources, null; default `{from_train: 1000}`): ",
        "`hub` (text; required): ",
    ):
        assert key in everything


def test_every_command_and_option_is_there() -> None:
    page = reference.commands_page()
    for name in ("train", "translate", "eval", "report", "serve", "distill", "backtranslate"):
        assert f"\n## mt {name}\n" in page
    assert "`--length-penalty FLOAT`" in page
    assert "Example: `mt eval --model runs/demo`" in page
    assert max(map(len, page.splitlines())) <= reference.WIDTH


def test_a_result_is_one_item() -> None:
    assert reference._docstring("Read it.\n\nReturns:\n    lines, and\n    words.").endswith("\n* lines, and words.")


def test_the_pages_are_current() -> None:
    for name, content in reference.pages().items():
        assert (reference.DOCS / name).read_text(encoding="utf-8") == content, "run `python scripts/reference.py`"


def test_every_key_that_a_page_names_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        named = re.findall(
            r"`(data|tokenizer|model|training|decoding|evaluation)\.(?!safetensors|json|bin)([a-z_]+)", page.read_text()
        )
        for section, key in named:
            assert key in SECTIONS[section].model_fields, f"{page.name}: {section}.{key}"
