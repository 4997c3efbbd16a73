"""Training text that a model makes: back-translations and the translations of a teacher.

One file of lines becomes another, line by line, so that the two together are a source of a configuration. It can be
stopped at any moment and goes on where it was.
"""

import hashlib
import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from mt import storage
from mt.compressed import COMPRESSED
from mt.console import log, progress
from mt.data.lines import read_lines
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator
from mt.errors import InputError
from mt.growing_file import GrowingFile

LINES_AT_ONCE = 2000  # translated together, and lost at most when the process is killed


def synthesize(
    translator: Translator,
    options: SearchOptions,
    source: Path,
    output: Path,
    made_with: Any,
    tag: str = "",
    lines_at_once: int = LINES_AT_ONCE,
) -> int:
    """Translates a file to another of as many lines; an empty line stays empty.

    Args:
        translator: does it.
        options: how.
        source: what to translate.
        output: where the translations go; a file that is already there is replaced.
        made_with: what identifies the model and the engine: with another, an unfinished output is begun again.
        tag: a word put before every translation (Caswell et al. 2019, arXiv:1906.06442).
        lines_at_once: of the file.

    Returns:
        the number of lines.

    Raises:
        InputError: the input is the output, is empty or no UTF-8 text, or another process writes the output.
    """
    total = sum(1 for _ in read_lines(source))
    if total == 0:
        raise InputError(f"{source}: no line in it")
    if output.exists() and source.samefile(output):
        raise InputError(f"{output}: this is the input", "name another output")
    if output.suffix.lower() in COMPRESSED:
        raise InputError(
            f"{output}: cannot be written compressed", f"leave out {output.suffix}, and compress it afterwards"
        )
    content = [made_with, asdict(options), tag, storage.sha256(source)]
    key = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    with GrowingFile(output, key) as file, progress(total=total, unit="line", desc="translating") as bar:
        if file.lines:
            log.info("%s: going on after line %d of %d", output, file.lines, total)
        bar.update(file.lines)
        lines = islice(read_lines(source), file.lines, None)
        while block := list(islice(lines, lines_at_once)):
            found = translator.translate(block, options, first_line=file.lines + 1)
            file.append([f"{tag} {c[0].text}" if tag and c[0].text else c[0].text for c in found])
            bar.update(len(block))
        file.finish()
    return total
