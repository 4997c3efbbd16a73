"""The shipped configurations: all can be read, and the variants train."""

import json
from pathlib import Path

import pytest

from command import Command, mt
from mt.config import load_config
from mt.storage.run_dir import RunDir

CONFIGS = Path(__file__).parent.parent.parent / "configs"
VARIANTS = sorted((CONFIGS / "variants").glob("*.yaml"), key=lambda path: path.name)
RECIPES = [*sorted(CONFIGS.glob("*.yaml")), *VARIANTS]
SMALL = (
    "model.d_model=16 model.n_heads=2 model.d_ff=24 training.max_steps=3 training.validate_every=3 "
    "training.warmup_steps=1 training.report=false training.tensorboard=false decoding.max_length=8 "
    "evaluation.bootstrap_samples=0"
).split()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_can_be_read_and_is_described(path: Path) -> None:
    name = load_config(path).name
    assert name.replace("-", "_") == path.stem or path in VARIANTS
    assert path.read_text().startswith("# ")


def test_no_two_recipes_share_a_run() -> None:
    names = [load_config(path).name for path in RECIPES]
    assert len(set(names)) == len(names)


def test_every_variant_differs_from_the_others() -> None:
    assert len(VARIANTS) >= 5
    shapes = [load_config(path).model.model_dump_json() for path in VARIANTS]
    assert len(set(shapes)) == len(shapes)


@pytest.mark.slow
@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_every_variant_trains_and_translates(path: Path, tmp_path: Path) -> None:
    sets = [word for change in SMALL for word in ("--set", change)]
    mt("train", "--config", path, *sets, cwd=tmp_path)
    done = mt("translate", "--model", f"runs/{load_config(path).name}", "The dog sleeps.", cwd=tmp_path)
    assert done.stdout.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_every_variant_learns_the_phrasebook(path: Path, tmp_path: Path) -> None:
    done = Command("train", "--config", path, cwd=tmp_path).wait(timeout=3600)
    assert done.code == 0, done.stderr
    scores = json.loads((RunDir(tmp_path / "runs" / load_config(path).name).scores / "test.json").read_bytes())
    bleu = {result["method"]: result["bleu"] for result in scores["results"]}
    assert bleu["beam"] >= 90, bleu
