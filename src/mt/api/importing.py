"""Import from Python: a model of other software as a model folder."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path


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
        target_langs: the language to translate into, or several; empty: all that it knows.
        prune: a text file, or several; only the pieces that they need remain in the vocabulary, and `model` may be a
            model folder with a SentencePiece tokenizer.
        force: replace an earlier import.

    Returns:
        the languages and where the model is, a line each.

    Raises:
        InputError: it is no such model, its files do not fit together, or `output` is in use.
    """
    from mt.extras.importing.importing import find_folder, import_folder
    from mt.storage.output_path import require_replaceable

    folder = find_folder(str(model))
    corpus = [Path(path) for path in ([prune] if isinstance(prune, str | Path) else prune)]
    check = partial(require_replaceable, Path(output), "mt import", "imported", [folder, *corpus], force)
    check()
    sources, targets = ([code] if isinstance(code, str) else code or () for code in (source_lang, target_langs))
    return import_folder(folder, Path(output), str(model), (sources, targets), corpus, check)
