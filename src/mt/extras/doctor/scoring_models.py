"""Models that score pairs: a small one that is trained for it, and sentence embeddings."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mt.data.corpus import Pair
from mt.errors import InputError
from mt.extras.doctor.scoring import Similarity

_EPOCHS, _BYTES_A_STEP = 6, 8_500  # of target text in batches of 2,048 tokens, padding counted
_STEPS = 500, 1_500
_HELD_OUT = 200


def small_model(
    name: str, languages: tuple[str, str], root: str, train: list[dict[str, str]], size: int, device: str
) -> dict[str, Any]:
    """Return the configuration of a model that learns for a few epochs: later it would know wrong pairs by heart.

    `size`: of the target text, in bytes.
    """
    steps = min(max(_EPOCHS * size // _BYTES_A_STEP, _STEPS[0]), _STEPS[1])
    return {
        "name": name,
        "data": {
            "source_lang": languages[0],
            "target_lang": languages[1],
            "root": root,
            "train": train,
            "valid": {"from_train": _HELD_OUT},
        },
        "tokenizer": {"vocab_size": 8000},
        "model": {
            "d_model": 128, "n_heads": 4, "d_ff": 256, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.1,
            "norm": "pre",
        },
        "training": {
            "device": device, "max_tokens": 2048, "max_steps": steps, "optimizer": "muon", "learning_rate": 6.0e-3,
            "schedule": "cosine", "warmup_steps": 200, "validate_every": max(250, steps // 4), "report": False,
        },
    }  # fmt: skip


def embedding_similarity(folder: Path, device: str) -> Similarity:
    """Return the cosine similarity by a local model of sentence-transformers."""
    if find_spec("sentence_transformers") is None:
        message = "--embeddings needs a package that is not installed (sentence-transformers)"
        raise InputError(message, "pip install sentence-transformers")
    if not folder.is_dir():
        raise InputError(f"--embeddings {folder}: no such folder", "name the folder of a model")
    from sentence_transformers import SentenceTransformer

    from mt.system.devices import choose_device

    model = SentenceTransformer(str(folder), device=str(choose_device(device, "--device")), local_files_only=True)

    def similarity(pairs: Sequence[Pair]) -> list[float]:
        source, target = (model.encode([p[side] for p in pairs], normalize_embeddings=True) for side in (0, 1))
        return [float(x) for x in (source * target).sum(axis=1)]

    return similarity
