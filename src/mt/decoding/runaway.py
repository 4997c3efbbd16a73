"""Runaway translations: far longer than their source, or the same words over and over; they are searched again.

Given input unlike its training text, such as a single rare word, a model may never choose EOS.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from mt.decoding.engine import Engine, Hypothesis, SearchOptions, Sentences

_MIN_COPIES = 4  # of a phrase in a row
_MAX_PHRASE = 8  # tokens
_MAX_RATIO = 2.0  # of tokens to those of the source, beyond which, and ten more, a translation is a runaway one
_RETRY_NGRAM = 2  # tokens that may not occur twice in the second search


def is_runaway(source: Sequence[int], target: Sequence[int]) -> bool:
    """Return True for a translation much longer than its source, or with a phrase at least four times in a row.

    Repetition is allowed where the source repeats as often, as in a row of dots.
    """
    if len(target) > _MAX_RATIO * len(source) + 10:
        return True
    if len(target) < _MIN_COPIES or max(Counter(target).values()) < _MIN_COPIES:
        return False
    return most_copies(target) >= max(_MIN_COPIES, 2 * most_copies(source))


def most_copies(ids: Sequence[int]) -> int:
    """Return how often a phrase of at most eight tokens follows itself, at most: 3 for a b a b a b."""
    most = 1
    for size in range(1, min(_MAX_PHRASE, len(ids) // 2) + 1):
        run = 0
        for i in range(size, len(ids)):
            run = run + 1 if ids[i] == ids[i - size] else 0
            most = max(most, run // size + 1)
    return most


def search_without_loops(
    engine: Engine, sentences: Sentences, options: SearchOptions, prefixes: Sentences = ()
) -> list[list[Hypothesis]]:
    """Translate sentences; where the best hypothesis is a runaway one, search again without repeated bigrams.

    Only with the option `retry_loops`, but not for samples, nor where `no_repeat_ngram_size` is set already. The second
    search counts if its best hypothesis is no runaway, or is shorter.
    """
    results = engine.translate(sentences, options, prefixes)
    if not options.retry_loops or options.sampling is not None or options.no_repeat_ngram_size:
        return results
    rows = [
        row
        for row, (source, [best, *_]) in enumerate(zip(sentences, results, strict=True))
        if len(best.ids) > options.min_length and is_runaway(source, best.ids)
    ]
    if not rows:
        return results
    # Longer ones would be runaways again; but a prefix may be as long.
    ratio = options.max_length_ratio if prefixes else min(options.max_length_ratio, _MAX_RATIO)
    options = replace(options, no_repeat_ngram_size=_RETRY_NGRAM, max_length_ratio=ratio)
    second = engine.translate([sentences[row] for row in rows], options, [prefixes[row] for row in rows if prefixes])
    for row, n_best in zip(rows, second, strict=True):
        ids = n_best[0].ids
        if not is_runaway(sentences[row], ids) or len(ids) < len(results[row][0].ids):
            results[row] = n_best
    return results
