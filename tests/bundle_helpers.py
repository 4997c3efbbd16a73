"""Model folders with random weights, and changes to their files."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from config_helpers import SMALLEST
from engine_helpers import ENGLISH, GERMAN
from model_helpers import scramble
from mt.bundle.model_folder import build_model, new_model
from mt.config import Config, parse_config
from mt.data.tokenizer_kinds import TokenizerPair
from mt.model.transformer import Transformer
from mt.storage.run_dir import ModelDir

LAYERS = ["model.encoder_layers=1", "model.decoder_layers=1", "data.max_length=20"]
SHAPE = ["model.d_model=16", "model.n_heads=2", "model.d_ff=32", *LAYERS]


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Apply an in-place change to a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, ensure_ascii=False))


def reseal(folder: ModelDir) -> None:
    """Write a manifest of whatever is in a folder now."""
    if folder.manifest.is_symlink() or folder.manifest.is_dir():
        return  # never write through a link to the outside
    files = {}
    for path in folder.root.rglob("*"):
        if path.is_file() and path != folder.manifest:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files[path.relative_to(folder.root).as_posix()] = {"bytes": len(content), "sha256": digest}
    folder.manifest.write_text(json.dumps({"files": files}))


class Trap:
    """An object that touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def configured(*changes: str) -> Config:
    return parse_config(SMALLEST, "x.yaml", [*SHAPE, "decoding.retry_loops=false", *changes])


def make(folder: Path, *changes: str) -> tuple[ModelDir, Transformer, TokenizerPair]:
    """Save a model with random weights."""
    config = configured(*changes)
    tokenizers = TokenizerPair.train(ENGLISH, GERMAN, 330, config.tokenizer.shared)
    model = build_model(config, tokenizers)
    scramble(model)
    saved = ModelDir(folder / "model")
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with new_model(saved, config, tokenizers, weights, {"steps": 7}):
        pass
    return saved, model.eval(), tokenizers
