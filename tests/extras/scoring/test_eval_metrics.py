"""`mt eval --metrics`: selected metrics, and COMET with its package and a checkpoint."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from command import mt
from mt.extras.scoring.comet import find_checkpoint

needs_comet = pytest.mark.skipif(importlib.util.find_spec("comet") is None, reason="unbabel-comet is not installed")

# Two small encoder layers with random weights, in the layout of COMET's downloads.
MAKE_CHECKPOINT = """
import torch, yaml
from pathlib import Path
from transformers import BertConfig, BertTokenizerFast
from comet.models import RegressionMetric
pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
Path("encoder").mkdir()
Path("encoder/vocab.txt").write_text("\\n".join(pieces))
BertTokenizerFast(vocab_file="encoder/vocab.txt").save_pretrained("encoder")
shape = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
BertConfig(vocab_size=len(pieces), max_position_embeddings=128, **shape).save_pretrained("encoder")
torch.manual_seed(0)
encoder = dict(encoder_model="BERT", pretrained_model=str(Path("encoder").resolve()), load_pretrained_weights=False)
model = RegressionMetric(hidden_sizes=[16, 8], keep_embeddings_frozen=False, **encoder)
Path("small/checkpoints").mkdir(parents=True)
state = {"state_dict": model.state_dict(), "hyper_parameters": dict(model.hparams)}
torch.save({**state, "pytorch-lightning_version": "2.0.0"}, "small/checkpoints/model.ckpt")
Path("small/hparams.yaml").write_text("class_identifier: regression_metric\\n")
"""


def results(trained: Path, output: Path, *options: str) -> list[dict[str, object]]:
    done = mt("eval", "--json", "--output", output, "--force", *options, cwd=trained)
    return json.loads(done.stdout)["results"]


def test_only_what_is_asked_for_is_scored_and_shown(trained: Path, tmp_path: Path) -> None:
    both, one = results(trained, tmp_path)[0], results(trained, tmp_path, "--metrics", "ter,BLEU")[0]
    assert one["signatures"].keys() == {"bleu", "ter"}
    assert (one["bleu"], one["ter"], one["chrf"]) == (both["bleu"], both["ter"], None)
    table = mt("eval", "--metrics", "ter", "--output", tmp_path, "--force", cwd=trained).stdout
    assert table.splitlines()[1].split()[1:4] == ["-", "-", "-"]
    assert "BLEU:" not in table
    assert "TER: nrefs" in table


def folder_with(tmp_path: Path, *files: str) -> Path:
    for file in files:
        path = tmp_path / "comet-model" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path / "comet-model"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metrics", "blue"], "--metrics: 'blue' is none of bleu, chrf, ter, comet"),
        (["--metrics", ","], "--metrics names none"),
        (["--metrics", "comet"], "give --comet-model FOLDER"),
        (["--metrics", "bleu", "--comet-model", "x"], "--comet-model belongs to --metrics comet"),
        (["--metrics", "comet", "--comet-model", "nowhere"], "--comet-model nowhere: no COMET checkpoint there"),
        (["--metrics", "chrf", "--tune-length-penalty"], "--tune-length-penalty and --metrics contradict"),
    ],
)
def test_invalid_options_are_one_sentence(trained: Path, options: list[str], message: str) -> None:
    done = mt("eval", *options, cwd=trained, code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""


def test_a_checkpoint_without_its_settings(trained: Path, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "checkpoints/model.ckpt")
    done = mt("eval", "--metrics", "comet", "--comet-model", folder, cwd=trained, code=2)
    assert f"there is no {folder}/hparams.yaml" in done.stderr


def test_a_checkpoint_is_found_where_comet_downloads_it(tmp_path: Path) -> None:
    """Hugging Face's cache holds links, `snapshots/REVISION/checkpoints/model.ckpt` to `blobs/HASH`."""
    snapshot = folder_with(tmp_path, "blobs/1f", "blobs/2a", "snapshots/27/checkpoints/empty") / "snapshots" / "27"
    (snapshot / "checkpoints" / "model.ckpt").symlink_to("../../../blobs/1f")
    (snapshot / "hparams.yaml").symlink_to("../../blobs/2a")
    assert find_checkpoint(snapshot) == snapshot / "checkpoints" / "model.ckpt"


@pytest.mark.skipif(importlib.util.find_spec("comet") is not None, reason="unbabel-comet is installed")
def test_without_the_package_it_says_what_to_install(trained: Path, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "hparams.yaml", "checkpoints/model.ckpt")
    done = mt("eval", "--metrics", "comet", "--comet-model", folder, cwd=trained, code=2)
    assert "pip install unbabel-comet" in done.stderr
    assert "Traceback" not in done.stderr


@needs_comet
def test_comet_is_what_comet_score_says(trained: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", MAKE_CHECKPOINT], cwd=tmp_path, check=True, capture_output=True)
    out = tmp_path / "out"
    greedy, beam = results(trained, out, "--metrics", "bleu,comet", "--comet-model", str(tmp_path / "small"))
    assert beam["signatures"]["comet"].startswith("model:small|version:")
    for entry in (greedy, beam):
        texts = ["-s", out / "test.source", "-t", out / f"test.{entry['method']}", "-r", out / "test.reference"]
        command = [Path(sys.executable).with_name("comet-score"), *texts, "--model", "small/checkpoints/model.ckpt"]
        said = subprocess.run([*command, "--gpus", "0"], cwd=tmp_path, check=True, capture_output=True, text=True)
        # The command computes in less than single precision.
        assert entry["comet"] == pytest.approx(float(said.stdout.split()[-1]), abs=2e-3)


@needs_comet
def test_a_damaged_checkpoint_is_one_sentence(trained: Path, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "checkpoints/model.ckpt")
    (folder / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    done = mt("eval", "--metrics", "comet", "--comet-model", folder, cwd=trained, code=2)
    assert "cannot be loaded as a COMET model" in done.stderr
