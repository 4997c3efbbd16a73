"""Translation of a document's sentences with the alignment of their words."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mt.api.search import SearchRequest, best_of
from mt.decoding.alignment import Unit
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator

SENTENCES = 256  # between two reports of progress


def translate_aligned(
    translator: Translator,
    texts: Sequence[str],
    defaults: SearchOptions,
    request: SearchRequest,
    progress: Callable[[int, int], None] | None,
) -> list[tuple[str, Sequence[Unit]]]:
    """Return the translation of each sentence, and its words aligned to the sentence."""
    options = replace(request.options(defaults, scores=False), attention=True)
    utility, done = request.utility_in(translator.target_lang), list[tuple[str, Sequence[Unit]]]()
    for start in range(0, len(texts), SENTENCES):
        block = texts[start : start + SENTENCES]
        for line, candidates in zip(block, translator.translate(block, options, None), strict=True):
            [best] = best_of(candidates, utility, 1, options.sampling is not None)
            done.append((best.text, translator.align(line, best)))
        if progress is not None:
            progress(len(done), len(texts))
    return done
