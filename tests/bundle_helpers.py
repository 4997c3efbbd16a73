"""What several tests do to model folders."""

import hashlib
import json
from pathlib import Path

from config_helpers import SMALLEST
from model_helpers import scramble
from mt.bundle.model_folder import build_model, new_model
from mt.config import Config, parse_config
from mt.data.tokenizer import TokenizerPair
from mt.model.transformer import Transformer
from mt.storage.run_dir import ModelDir


def reseal(folder: ModelDir) -> None:
    """Makes a manifest that agrees with whatever is in a folder now."""
    if folder.manifest.is_symlink() or folder.manifest.is_dir():
        return  # never write through a link that leads out
    files = {}
    for path in folder.root.rglob("*"):
        if path.is_file() and path != folder.manifest:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files[path.relative_to(folder.root).as_posix()] = {"bytes": len(content), "sha256": digest}
    folder.manifest.write_text(json.dumps({"files": files}))


ENGLISH = ["A dog runs over the grass.", "Two men are talking.", "The old house is on the hill."]


GERMAN = ["Ein Hund läuft über das Gras.", "Zwei Männer reden.", "Das alte Haus steht auf dem Hügel."]


SHAPE = [
    "model.d_model=16",
    "model.n_heads=2",
    "model.d_ff=32",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "data.max_length=20",
]


def configured(*changes: str) -> Config:
    return parse_config(SMALLEST, "x.yaml", [*SHAPE, *changes])


def make(folder: Path, *changes: str) -> tuple[ModelDir, Transformer, TokenizerPair]:
    """Saves a model with random weights."""
    config = configured(*changes)
    tokenizers = TokenizerPair.train(ENGLISH, GERMAN, 330, config.tokenizer.shared)
    model = build_model(config, tokenizers)
    scramble(model)
    saved = ModelDir(folder / "model")
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with new_model(saved, config, tokenizers, weights, {"steps": 7}) as aside:
        aside.readme.write_text("# A model\n")
    return saved, model.eval(), tokenizers
