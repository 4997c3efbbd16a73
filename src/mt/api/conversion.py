"""Export and import from Python: models in the form of other software."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mt.api.loading import ModelPath, find_models
from mt.api.texts import several
from mt.bundle.load_translator import read_config
from mt.data.eval_texts import read_texts
from mt.errors import InputError
from mt.evaluation.texts import has_split, owner, pair_text
from mt.storage.output_path import require_model_output, require_replaceable


def export(
    format_: str,
    output: str | Path,
    model: ModelPath | None = None,
    *,
    quantization: str | None = None,
    max_loss: float | None = None,
    source: str | Path | None = None,
    reference: str | Path | None = None,
    to: str | None = None,
    source_lang: str | None = None,
    force: bool = False,
    runs: str | Path = "runs",
) -> str:
    """Write a model for other software, and compare the output of that software with the model's.

    Args:
        format_: ctranslate2, huggingface, onnx or argos.
        output: the folder to write; it appears when it is complete.
        model: a run folder, a model folder or a checkpoint; None: the newest finished run in `runs`.
        quantization: weights of ctranslate2 and argos: float32, float16 or int8.
        max_loss: BLEU points that quantization may cost on the validation set; None: 0.5.
        source, reference: two files aligned by line, to measure that loss on; None: the run's validation set.
        to, source_lang: the languages of `reference` and `source`, where the model has several.
        force: replace an earlier export.

    Returns:
        the result of the comparison and the path of the export, one line each.

    Raises:
        InputError: the format cannot hold this model, the export loses more than `max_loss`, or `output` is in use.
    """
    from mt.extras.export.exporting import check_request
    from mt.extras.export.exporting import export as write

    if (source is None) != (reference is None):
        raise InputError("source and reference go together", "give both, or neither for the run's validation set")
    if source is None and (to is not None or source_lang is not None):
        message = "--to and --from say which languages --reference and --source are in"
        raise InputError(message, "give these files, or leave the languages out")
    known_format = check_request(format_, quantization, max_loss)
    (folder,) = find_models(model, runs)
    run = owner(folder)
    inputs = [Path(path) for path in (folder.root, run.root if run else None, source, reference) if path]
    check = partial(require_replaceable, Path(output), "mt export", "export", inputs, force)
    check()
    data = read_config(folder).data
    if source is not None and reference is not None:
        texts = [pair_text(Path(source), Path(reference), data, to, source_lang)]
    else:
        texts = read_texts(run, "valid", data) if run is not None and has_split(run, "valid") else []
    return write(folder, known_format, Path(output), texts, quantization, max_loss, check)


def import_model(
    model: str | Path,
    output: str | Path,
    *,
    source_lang: str | Sequence[str] | None = None,
    target_langs: str | Sequence[str] = (),
    prune: str | Path | Sequence[str | Path] = (),
    force: bool = False,
) -> str:
    """Write a model folder with the weights and the tokenizer of a model of other software.

    Args:
        model: a Hugging Face folder of MarianMT, M2M-100, NLLB, mBART or our own export, or its name on the hub; a
            folder with Marian's .npz, or that file; a folder of CTranslate2.
        output: the folder to write; it appears when it is complete.
        source_lang: the language to translate from, or several, where the model knows several.
        target_langs: the language to translate into, or several; empty: all that the model knows.
        prune: a text file, or several; only the pieces that they need remain in the vocabulary. `model` may then also
            be a model folder of mt with a SentencePiece tokenizer.
        force: replace an earlier import.

    Returns:
        the languages and the path of the model, one line each.

    Raises:
        InputError: the model is of no such kind, its files do not fit together, or `output` is in use.
    """
    from mt.extras.importing.importing import find_folder, import_folder  # imports torch

    folder = find_folder(str(model))
    corpus = [Path(path) for path in several(prune)]
    check = partial(require_replaceable, Path(output), "mt import", "imported", [folder, *corpus], force)
    require_model_output(Path(output), folder)
    check()
    languages = several(source_lang), several(target_langs)
    return import_folder(folder, Path(output), str(model), languages, corpus, check)
