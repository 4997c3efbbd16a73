"""Synthetic training text from Python: distillation and back-translation of whole files."""

from dataclasses import replace
from pathlib import Path
from typing import Unpack

from mt.api.loading import Models, find_models
from mt.api.search import Search, SearchRequest
from mt.bundle.load_translator import open_model
from mt.decoding import synthesis
from mt.decoding.engine import EngineChoice
from mt.errors import InputError
from mt.storage.manifest import read_manifest, translating_files
from mt.storage.output_path import require_writable
from mt.text.languages import BACK_TRANSLATION_TAG


def synthesize(
    source: str | Path,
    output: str | Path,
    model: Models = None,
    *,
    tag: str = "",
    references: str | Path | None = None,
    n_best: int | None = None,
    to: str | None = None,
    source_lang: str | None = None,
    engine: str = "auto",
    compute_type: str = "auto",
    device: str = "auto",
    shortlist: bool | None = None,
    runs: str | Path = "runs",
    request: SearchRequest | None = None,
    **search: Unpack[Search],
) -> int:
    """Translate a file into training text, line by line, and return the number of lines; the same call resumes.

    Args:
        source, output: the files; `output` is replaced once it is complete.
        model, engine, compute_type, device, shortlist, runs: as of `mt.load`.
        tag: put before every translation: "<BT>" (Caswell et al. 2019), the one tag that training knows, or "".
        references: human translations, aligned by line; the most similar of the `n_best` is written (Kim and
            Rush 2016).
        n_best: with `references`: how many to choose from; None: the whole beam.
        to, source_lang: the languages, where the model has several.
        request: a search that is checked already, instead of the arguments of `Search`.

    Raises:
        InputError: there is no such model or text, or the arguments contradict each other.
    """
    request = request or SearchRequest.of(search, 1 if n_best is None else n_best)
    _check_arguments(request, tag, references is not None, n_best)
    require_writable(Path(output), "--output")
    folders = find_models(model, runs)
    choice = EngineChoice(engine, device, compute_type, shortlist, sampling=request.sampling is not None)
    opened = open_model(folders[0], choice, folders[1:])
    options = request.options(opened.settings.search, scores=False)
    if references is not None:
        options = options if n_best is not None else replace(options, n_best=options.beam_size)
        if options.n_best < 2:
            message = "--closest-to needs more than one translation to choose from"
            raise InputError(message, "add --beam N, or --n-best N")
    translator = opened.translator.to(to, source_lang)
    weights = [translating_files(read_manifest(folder.root)["files"]) for folder in folders]
    model_key = [opened.engine, *filter(None, (source_lang,)), translator.target_lang, *weights]
    closest_to = None if references is None else Path(references)
    return synthesis.synthesize(translator, options, Path(source), Path(output), model_key, tag, references=closest_to)


def _check_arguments(request: SearchRequest, tag: str, has_references: bool, n_best: int | None) -> None:
    """Refuse a tag that training does not know, and a number of translations that contradicts the other arguments."""
    request.refuse_utility()
    if tag not in ("", BACK_TRANSLATION_TAG):
        message = f"{request.name('tag')}: {tag!r} is not {BACK_TRANSLATION_TAG}, the one tag that training knows"
        raise InputError(message, "leave it out, or give an empty one for none")
    if not has_references and n_best is not None:
        raise InputError("n_best belongs to references", "give both, or neither")
    if has_references and n_best is None and request.sampling is not None:
        message = f"{request.name('sample')} with references needs the number of translations to draw"
        raise InputError(message, f"add {request.name('n_best')} N")
