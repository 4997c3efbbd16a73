"""COMET (Rei et al. 2020, arXiv:2009.09025): a learned metric, through its own package, which mt does not install."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mt.console import log
from mt.errors import InputError, first_line

if TYPE_CHECKING:
    from mt.evaluation.test_set import MethodResult

_BATCH = 16  # sentences; the package's default


class Comet:
    """A COMET checkpoint.

    Args:
        path: a checkpoint file (`.../checkpoints/model.ckpt`, with hparams.yaml one folder above), or the folder that
            holds both.
        gpu: whether to compute on a GPU.

    Attributes:
        signature: the checkpoint's folder and the package's version, on which scores depend.

    Raises:
        InputError: the package is not installed, or there is no such checkpoint.
    """

    def __init__(self, path: Path, gpu: bool) -> None:
        checkpoint = find_checkpoint(path)
        try:
            from comet import load_from_checkpoint
        except ImportError as error:
            raise InputError(
                f"--metrics comet needs the package unbabel-comet, which cannot be imported ({error})",
                "pip install unbabel-comet, in a separate environment if its requirements conflict with mt's",
            ) from None
        log.info("loading %s", checkpoint)
        try:
            self._model: Any = load_from_checkpoint(str(checkpoint))
        except Exception as error:  # the package raises whatever its dependencies do
            raise InputError(f"{checkpoint}: cannot be loaded as a COMET model: {first_line(error)}") from None
        self._gpus = int(gpu)
        try:
            installed = version("unbabel-comet")
        except PackageNotFoundError:
            installed = "unknown"
        self.signature = f"model:{checkpoint.parents[1].resolve().name}|version:{installed}"

    def added_to(self, result: "MethodResult") -> "MethodResult":
        """Return a result with COMET: the mean over all sentences, on the checkpoint's scale; higher is better."""
        text, hypotheses = result.translated.text, result.translated.hypotheses
        samples = [
            {"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(text.sources, hypotheses, text.references, strict=True)
        ]
        prediction = self._model.predict(samples, batch_size=_BATCH, gpus=self._gpus, progress_bar=False)
        signatures = result.scores.signatures | {"comet": self.signature}
        scores = replace(result.scores, comet=float(prediction.system_score), signatures=signatures)
        return replace(result, scores=scores)


def find_checkpoint(path: Path) -> Path:
    """Return the file of a checkpoint, given the file or its folder; raise InputError if there is none."""
    checkpoint = path / "checkpoints" / "model.ckpt" if path.is_dir() else path
    if not checkpoint.is_file():
        hint = "give the folder that COMET downloads (hparams.yaml and checkpoints/model.ckpt)"
        raise InputError(f"--comet-model {path}: no COMET checkpoint there", hint)
    # Its link is not followed: Hugging Face's cache, to which COMET downloads, links to files of other names elsewhere.
    checkpoint = checkpoint.absolute()
    settings = checkpoint.parents[1] / "hparams.yaml"
    if not settings.is_file():
        raise InputError(f"--comet-model {path}: there is no {settings}, which belongs to a COMET checkpoint")
    return checkpoint
