"""The reference of the configuration in the README: complete and current."""

import sys
from pathlib import Path

import pytest

from config_helpers import SECTIONS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import config_reference


def test_the_reference_has_every_key_once_with_default_and_meaning() -> None:
    reference = config_reference.reference_markdown()
    for name, section in SECTIONS.items():
        table = reference.split(f"#### `{name}`\n")[1].split("####")[0]
        for key, field in section.model_fields.items():
            (row,) = [row for row in table.splitlines() if row.startswith(f"| `{key}` |")]
            assert field.description
            assert field.description.endswith(".")
            assert row.endswith(f"{field.description} |")
    assert "| `n_heads` | whole number, ≥ 1 | `8` |" in reference
    assert "| `norm` | `post`, `pre` | `post` |" in reference
    assert "| `patience` | whole number, null, ≥ 1 | `10` |" in reference
    assert "| `betas` | list of 2 × number | `[0.9, 0.98]` |" in reference
    assert "| `test` | source, list of sources, null | `{from_train: 1000}` |" in reference
    assert "| `hub` | text | required |" in reference


def test_the_reference_goes_between_its_markers() -> None:
    readme = f"before\n{config_reference.BEGIN}\nOLD\n{config_reference.END}\nafter\n"
    written = config_reference.with_reference(readme)
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "OLD" not in written
    assert config_reference.with_reference(written) == written
    with pytest.raises(ValueError, match="lacks the lines"):
        config_reference.with_reference("no markers")


def test_the_readme_has_the_current_reference() -> None:
    readme = config_reference.README.read_text(encoding="utf-8")
    assert config_reference.with_reference(readme) == readme, "run `python scripts/config_reference.py --write`"
