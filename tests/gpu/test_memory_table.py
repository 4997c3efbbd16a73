"""The table of the largest batches of GPUs (scripts/bench/memory_table.py), on models whose memory is known."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from conftest import CONFIG

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench" / "memory_table.py"
D_MODEL, POSITIONS, GB = 64, 50_000, 1e9


def table(folder: Path, **models: str) -> list[dict[int, int]]:
    """Return the largest batches by the size of a card, for each model by its name and lines of YAML."""
    for name, lines in models.items():
        text = CONFIG.replace("d_model: 16, n_heads: 2, d_ff: 32, encoder_layers: 1, decoder_layers: 1", lines)
        text = text.replace("max_length: 40", f"max_length: {POSITIONS}").replace(
            "max_tokens: 200", "max_tokens: 100000"
        )
        (folder / f"{name}.yaml").write_text(text)
    command = [sys.executable, str(SCRIPT), *(f"{name}.yaml" for name in models), "--vocab", "1000"]
    printed = subprocess.run(command, cwd=folder, env=os.environ, check=True, capture_output=True, text=True).stdout
    header, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines())
    assert [row[0] for row in rows] == list(models)
    sizes = [int(cell.removesuffix(" GB")) for cell in header[1:]]
    return [dict(zip(sizes, (int(cell.replace(",", "")) for cell in row[1:]), strict=True)) for row in rows]


def bytes_of(tokens: dict[int, int]) -> tuple[float, float]:
    """Return the bytes a token, and those that do not depend on the tokens, of which a tenth is reserve."""
    per_token = 0.9 * (80 - 40) * GB / (tokens[80] - tokens[40])
    return per_token, 0.9 * 80 * GB - tokens[80] * per_token


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="fake CUDA needs g++")
@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has real CUDA, which fake CUDA cannot replace")
def test_memory_grows_with_tokens_layers_and_parameters(tmp_path: Path) -> None:
    shape = f"d_model: {D_MODEL}, n_heads: 1, d_ff: 128"
    models = {f"layers{n}": f"{shape}, encoder_layers: {n}, decoder_layers: {n}" for n in (1, 2, 3)}
    models["learned"] = f"{models['layers1']}, positions: learned"
    one, two, three, learned = map(bytes_of, table(tmp_path, **models))
    # A layer of each stack keeps some vectors of each token of both sides, in 2 and 4 bytes a number.
    layer = two[0] - one[0]
    assert 2 * 10 * 2 * D_MODEL < layer < 2 * 60 * 4 * D_MODEL
    assert three[0] - two[0] == pytest.approx(layer, rel=0.01)
    assert learned[1] - one[1] == pytest.approx(18 * 2 * POSITIONS * D_MODEL, rel=0.05)  # of source and target
    assert one[1] == pytest.approx(0.8 * GB + 2**29, rel=0.02)
