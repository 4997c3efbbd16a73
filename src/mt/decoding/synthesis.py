"""Synthetic training text: back-translation and sequence-level distillation.

A file is translated line by line, so that input and output together are a training source. Work that was interrupted
resumes where it stopped.
"""

from dataclasses import asdict
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from mt.console import log, progress
from mt.decoding.candidates import closest, lines_at_once
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator
from mt.errors import InputError
from mt.metrics.pairwise import utility_for
from mt.storage.manifest import sha256, stage_key
from mt.storage.output_path import refuse_inputs
from mt.storage.resumable_file import ResumableFile
from mt.text.compressed import refuse_compressed
from mt.text.lines import explain_read_errors, read_lines, refuse_pipe, take_block

BLOCK_SIZE = 2000  # lines translated together, and lost at most when the process is killed


def synthesize(
    translator: Translator,
    options: SearchOptions,
    source: Path,
    output: Path,
    model_key: Any,
    tag: str = "",
    block_size: int = BLOCK_SIZE,
    references: Path | None = None,
) -> int:
    """Translate a file line by line into another, and return the number of lines.

    An empty line stays empty; an existing output is replaced.

    Args:
        model_key: identifies the model and engine; with another key, an unfinished output is restarted.
        tag: a word put before every translation (Caswell et al. 2019, arXiv:1906.06442).
        references: human translations, aligned by line; of the n best translations the closest one is chosen
            (Kim and Rush 2016, arXiv:1606.07947, section 3.3).

    Raises:
        InputError: the source or the references are the output, not a file or not UTF-8 text, differ in length, or
            change while they are read; the source is empty; or another process is writing the output.
    """
    n_lines = _count_lines(source)
    if n_lines == 0:
        raise InputError(f"{source}: no line in it")
    refuse_inputs([output], [source, references])
    refuse_compressed(output)
    if references is not None and (found := _count_lines(references)) != n_lines:
        raise InputError(
            f"{references} has {found:,} lines, {source} has {n_lines:,}", "give the input's own references"
        )
    digests = {path: sha256(path) for path in (source, references) if path is not None}
    key = stage_key(model_key, asdict(options), tag, references is None, *digests.values())
    utility = utility_for("bleu", translator.target_lang)
    with ResumableFile(output, key) as file, progress(total=n_lines, unit="line", desc="translating") as bar:
        if file.lines:
            log.info("%s: resuming after line %d of %d", output, file.lines, n_lines)
        bar.update(file.lines)
        wanted = repeat(None) if references is None else islice(read_lines(references), file.lines, None)
        lines = islice(read_lines(source), file.lines, None)
        while block := take_block(lines, lines_at_once(block_size, options.n_best)):
            translated = translator.translate(block, options, first_line=file.lines + 1)
            texts = [
                candidates[0].text if reference is None else closest(candidates, reference, utility)
                for candidates, reference in zip(translated, wanted, strict=False)
            ]
            file.append([f"{tag} {text}" if tag and text else text for text in texts])
            bar.update(len(block))
        _refuse_changed(digests, file.lines == n_lines)
        file.finish()
    return n_lines


def _refuse_changed(digests: dict[Path, str], is_complete: bool) -> None:
    changed = []
    for path, digest in digests.items():
        with explain_read_errors(path):
            changed += [path] * (sha256(path) != digest)
    if changed or not is_complete:
        [path, *_] = changed or digests
        raise InputError(f"{path}: changed while it was read", "run the same command again")


def _count_lines(path: Path) -> int:
    refuse_pipe(path)  # it could not be read again
    return sum(1 for _ in read_lines(path))
