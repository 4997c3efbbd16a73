"""Model folders by path or as the newest run, and `load`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mt.api.texts import several
from mt.api.translation import Translator
from mt.bundle.load_translator import open_model
from mt.decoding.engine import EngineChoice
from mt.errors import InputError
from mt.storage.find_model import find_model
from mt.storage.run_dir import ModelDir

if TYPE_CHECKING:
    from mt.data.glossary import Glossary

ModelPath = str | Path
Models = ModelPath | Sequence[ModelPath] | None


def find_models(model: Models, runs: str | Path) -> list[ModelDir]:
    """Return the model folders of one path or several; None: that of the newest finished run in `runs`."""
    if model is None:
        return [find_model(None, Path(runs))]
    if not (paths := several(model)):
        raise InputError("model: an empty list names no model", "leave it out for the newest run")
    return [find_model(Path(path), Path(runs)) for path in paths]


def load(
    model: Models = None,
    *,
    engine: str = "auto",
    compute_type: str = "auto",
    device: str = "auto",
    shortlist: bool | None = None,
    runs: str | Path = "runs",
    one_by_one: bool = False,
    sampling: bool = False,
    glossary: str | Path | None = None,
    keep: str | Sequence[str] = (),
) -> Translator:
    """Load a model to translate with.

    Args:
        model: a run folder, a model folder or a checkpoint; several translate as an ensemble, with the decoding
            settings of the first. None: the newest finished run in `runs`.
        engine: auto, ctranslate2, torch, or on a GPU torch-graphs.
        compute_type: the number format: auto, float32, float16, bfloat16, int8, ...
        device: auto, cpu, cuda or mps.
        shortlist: search among likely target words only; None: as the model was trained.
        runs: the folder of runs.
        one_by_one: sentences will come one at a time; the engine then uses all threads for each, but in int8 one
            thread.
        sampling: translations will be sampled, which needs torch.
        glossary: a TSV or TBX file of terms that translations must have.
        keep: regular expressions of text to keep as it is, such as URLs, or just one.

    Raises:
        InputError: there is no such model, it is damaged, this machine cannot run it with these options, or a term has
            two translations.
    """
    terms = glossary_of(glossary, keep)
    folders = find_models(model, runs)
    choice = EngineChoice(engine, device, compute_type, shortlist, one_by_one, sampling)
    return Translator(open_model(folders[0], choice, folders[1:]).with_glossary(terms), folders[0].root)


def glossary_of(path: str | Path | None, keep: str | Sequence[str] | None) -> "Glossary | None":
    """Return the glossary of a file of terms, of patterns of text to keep, or of both; None without either."""
    patterns = several(keep)
    if path is None and not patterns:
        return None
    from mt.data.glossary import Glossary

    return Glossary(None if path is None else Path(path), patterns)
