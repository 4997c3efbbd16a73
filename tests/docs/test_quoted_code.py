"""Code that the pages quote: a Python block that begins with `# src/mt/...` is found in that file."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
QUOTES = [
    pytest.param(match[1], match[2], id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, match in enumerate(re.finditer(r"^```python\n# (src/\S+)\n(.*?)^```$", page.read_text(), re.M | re.S))
]


@pytest.mark.parametrize(("file", "code"), QUOTES)
def test_quoted_code_is_in_its_file(file: str, code: str) -> None:
    lines, length = (ROOT / file).read_text().splitlines(keepends=True), code.count("\n")
    windows = (dedent("".join(lines[start : start + length])) for start in range(len(lines)))
    assert code in windows


def test_the_walk_through_the_model_quotes_it() -> None:
    page = (ROOT / "docs" / "transformer.md").read_text()
    for name in ("transformer", "layers", "attention", "embedding"):
        assert f"# src/mt/model/{name}.py\n" in page
