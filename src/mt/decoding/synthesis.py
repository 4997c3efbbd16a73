"""Training text that a model makes: back-translations and the translations of a teacher.

One file of lines becomes another, line by line, so that the two together are a source of a configuration. It can be
stopped at any moment and goes on where it was.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from mt.console import log, progress
from mt.data.tokenizer import normalized
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Candidate, Translator, lines_at_once
from mt.errors import InputError
from mt.metrics.pairwise import UTILITIES, utility_for
from mt.storage.manifest import sha256
from mt.storage.output_path import refuse_inputs
from mt.storage.resumable_file import ResumableFile
from mt.text.compressed import refuse_compressed
from mt.text.lines import read_lines, refuse_pipe

LINES_AT_ONCE = 2000  # translated together, and lost at most when the process is killed


def synthesize(
    translator: Translator,
    options: SearchOptions,
    source: Path,
    output: Path,
    made_with: Any,
    tag: str = "",
    most_lines: int = LINES_AT_ONCE,
    references: Path | None = None,
) -> int:
    """Translates a file to another of as many lines; an empty line stays empty.

    Args:
        translator: does it.
        options: how.
        source: what to translate.
        output: where the translations go; a file that is already there is replaced.
        made_with: what identifies the model and the engine: with another, an unfinished output is begun again.
        tag: a word put before every translation (Caswell et al. 2019, arXiv:1906.06442).
        most_lines: of the file, translated together.
        references: what people wrote, line by line; of the `options.n_best` translations the closest one is taken
            (Kim and Rush 2016, arXiv:1606.07947, section 3.3).

    Returns:
        the number of lines.

    Raises:
        InputError: the input or the references are the output, no file or no UTF-8 text, or not of the same length;
            the input is empty; or another process writes the output.
    """
    total = _count_lines(source)
    if total == 0:
        raise InputError(f"{source}: no line in it")
    refuse_inputs([output], [source, references])
    refuse_compressed(output)
    content = [made_with, asdict(options), tag, sha256(source)]
    if references is not None:
        _check_alignment(references, source, total)
        content.append(sha256(references))
    utility = utility_for("bleu", translator.target_lang)
    key = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    with ResumableFile(output, key) as file, progress(total=total, unit="line", desc="translating") as bar:
        if file.lines:
            log.info("%s: going on after line %d of %d", output, file.lines, total)
        bar.update(file.lines)
        lines = islice(read_lines(source), file.lines, None)
        wanted = repeat(None) if references is None else islice(read_lines(references), file.lines, None)
        while block := list(islice(lines, lines_at_once(most_lines, options.n_best))):
            found = translator.translate(block, options, first_line=file.lines + 1)
            choices = zip(found, islice(wanted, len(block)), strict=True)
            texts = [closest(candidates, reference, utility) for candidates, reference in choices]
            file.append([f"{tag} {text}" if tag and text else text for text in texts])
            bar.update(len(block))
        file.finish()
    return total


def closest(candidates: Sequence[Candidate], reference: str | None, utility: str = "bleu") -> str:
    """The translation that is most like the reference; among equals the first.

    Args:
        candidates: the likeliest first.
        reference: what it should be like; None takes the first.
        utility: how likeness is measured, a name of `UTILITIES`.
    """
    if reference is None:
        return candidates[0].text
    texts = list(dict.fromkeys(candidate.text for candidate in candidates))
    likeness = UTILITIES[utility]([*texts, normalized(reference)])[:-1, -1]
    return texts[int(likeness.argmax())]


def _count_lines(path: Path) -> int:
    """Of a file that can be read again."""
    refuse_pipe(path)
    return sum(1 for _ in read_lines(path))


def _check_alignment(references: Path, source: Path, lines: int) -> None:
    found = _count_lines(references)
    if found != lines:
        raise InputError(f"{references} has {found:,} lines, {source} has {lines:,}", "give the input's own references")
