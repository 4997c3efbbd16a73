"""The exports that a configuration asks for, at the end of its training."""

from mt.config import Config
from mt.console import log
from mt.data.eval_texts import read_texts
from mt.errors import MtError
from mt.extras.export.exporting import ExportOptions, export, require_packages
from mt.storage import atomic
from mt.storage.manifest import read_manifest
from mt.storage.run_dir import RunDir
from mt.storage.stage import is_done, stage_key

_VERSION = 1  # of what exports look like; those of an older one are written anew


def require_exports(config: Config) -> None:
    """Refuses a training whose exports need what is not installed, before it begins.

    Raises:
        InputError: a package is missing.
    """
    for wanted in config.exports:
        require_packages(wanted)


def write_exports(config: Config, run_dir: RunDir) -> str:
    """Writes those that are not there yet for the run's model.

    Returns:
        a line or more for each to show; one that fails or would lose too much is not written, which the training
        survives.
    """
    said = []
    files = read_manifest(run_dir.model.root)["files"]
    for wanted in config.exports:
        output, key = run_dir.export(wanted), stage_key("export", _VERSION, wanted, files)
        if is_done(output, key):
            said.append(f"{wanted}: {output}")
            continue
        log.info("exporting the model as %s", wanted)
        texts = read_texts(run_dir, "valid", config.data.target_lang)
        try:
            said.append(export(run_dir.model, wanted, output, texts, ExportOptions(), key=key))
        except Exception as error:  # whatever it is in whichever library: the model is there, and its scores are
            atomic.remove_if_exists(output)
            reason = error.message if isinstance(error, MtError) else f"{type(error).__name__}: {error}"
            said.append(f"{wanted}: not exported: {reason}")
            log.warning("exports: %s", said[-1])
    return "\n".join(said)
