"""Blocks of lines in another language than expected, or with the two sides swapped.

A line is compared with other languages by py3langid's n-grams, and with the other side by n-grams whose frequencies the
corpus itself teaches, which also tells close relatives and unlisted languages apart. A single line proves little, and
names prove nothing: the evidence is summed over consecutive lines (CUSUM, Page 1954).

    N pairs   F n-grams   L languages
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice

import numpy as np

from mt.data.corpus import Pair
from mt.data.ragged import Array
from mt.extras.doctor.line_languages import LineScorer, confusable, scorer_for
from mt.extras.doctor.pair_evidence import log_density_ratio
from mt.text.languages import base_language, language_name

_SEGMENT = 50_000  # pairs in memory together
_LEARNED = 10_000  # lines of each side from which n-grams and translated words of a segment are learned
_MIN_PAIRS = 300  # of a segment whose n-grams are learned
_SURE = 2.0  # nats of py3langid that make a line an example of the other side's language
_BOUND, _DOUBT = 4.0, 0.5  # largest evidence of a line in nats, and what is deducted for each line
_MIN_EVIDENCE = 25.0  # nats of a block
_TRANSLATED = 0.4  # share of a text's words that are translated elsewhere; lists of names and code have less
_WHOLE = 0.9  # share of a text that is nearly all of it
_SPARE = int(_MIN_EVIDENCE / (_BOUND + _DOUBT))  # lines too few to prove that they end a block beside them
_SAMPLED = 300  # lines of a block whose words are looked at
_BOTH = 2  # index of blocks with swapped sides, after the source and the target
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class LanguageBlock:
    """Pairs `start` to `end` (exclusive) of a corpus, counted from 0, with a side in another language.

    Attributes:
        side: 0 the source, 1 the target, None both: each side is in the language of the other.
        language: of that side.
        evidence: in nats.
        whole: with others of its side and language it is nearly all of the corpus.
        n_pairs: of the corpus.
    """

    start: int
    end: int
    side: int | None
    language: str
    evidence: float = 0.0
    whole: bool = False
    n_pairs: int = 0

    def overlap(self, start: int, end: int) -> int:
        """Return the number of common pairs."""
        return max(0, min(self.end, end) - max(self.start, start))

    def described(self, source: str, target: str) -> str:
        """Name the lines and their language."""
        unit = "pairs" if source == target else "lines"
        place = f"{self.start + 1:,} to {self.end:,}"
        lines = f"nearly all {unit} ({place})" if self.whole else f"{unit} {place}"
        if (self.start, self.end) == (0, self.n_pairs):
            lines = f"all {unit}"
        if self.side is None:
            return f"{target}: {lines} are swapped with those of {source}"
        column = f"{('source', 'target')[self.side]} side of " if source == target else ""
        return f"{(source, target)[self.side]}: {column}{lines}: {language_name(self.language)}"


def language_blocks(pairs: Iterable[Pair], languages: tuple[str, str]) -> list[LanguageBlock]:
    """Find the blocks of a corpus; without py3langid nothing is found."""
    if find_spec("py3langid") is None:
        return []
    remaining, n_pairs = iter(pairs), 0
    kinds: dict[tuple[int | None, str], list[LanguageBlock]] = {}
    while segment := list(islice(remaining, _SEGMENT)):
        for block in _segment_blocks(segment, languages):
            block = replace(block, start=block.start + n_pairs, end=block.end + n_pairs)
            kind = kinds.setdefault((block.side, block.language), [])
            if kind and block.start - kind[-1].end <= _SPARE:  # it reaches from one segment into the next
                kind[-1] = replace(kind[-1], end=block.end, evidence=kind[-1].evidence + block.evidence)
            else:
                kind.append(block)
        n_pairs += len(segment)
    for key, kind in kinds.items():
        if sum(block.end - block.start for block in kind) >= _WHOLE * n_pairs:
            kind[0] = replace(kind[0], start=0 if kind[0].start <= _SPARE else kind[0].start)
            kind[-1] = replace(kind[-1], end=n_pairs if n_pairs - kind[-1].end <= _SPARE else kind[-1].end)
            kinds[key] = [replace(block, whole=True, n_pairs=n_pairs) for block in kind]
    return sorted((block for kind in kinds.values() for block in kind), key=lambda block: block.start)


def _segment_blocks(pairs: Sequence[Pair], languages: tuple[str, str]) -> list[LanguageBlock]:
    """Return the blocks with the most evidence that do not overlap, by their start."""
    scorer, codes = scorer_for(*languages), [base_language(code) for code in languages]
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    scores = [scorer.score(side, scorer.table) for side in sides]
    candidates = [
        LanguageBlock(start, end, side, language, total)
        for side, language, gains in _evidence(scorer, sides, scores, codes)
        for start, end, total in _runs(gains - _DOUBT)
    ]
    names = _blocks_of_names(candidates, pairs, codes)
    kept, taken = list[LanguageBlock](), np.zeros((3, len(pairs)), np.int64)  # blocks of source, target, both (3, N)
    # Evidence is bounded, so several languages may have the same; that of the other side is the likeliest.
    for block in sorted(candidates, key=lambda block: (-block.evidence, block.language not in codes)):
        if block in names:
            continue
        side, lines = _BOTH if block.side is None else block.side, slice(block.start, block.end)
        rivals = taken[:, lines] if side == _BOTH else taken[[side, _BOTH], lines]
        if rivals.sum() < 0.3 * (block.end - block.start):
            kept.append(_named(block, scorer, scores, codes))
            taken[side, lines] += 1
    return sorted(kept, key=lambda block: block.start)


def _named(block: LanguageBlock, scorer: LineScorer, scores: Sequence[Array], codes: Sequence[str]) -> LanguageBlock:
    """Return a block in a third language with the one that py3langid finds likeliest for all of its lines."""
    if block.side is None or block.language in codes:
        return block
    totals = scores[block.side][block.start : block.end].sum(axis=0).tolist()
    ranked = sorted(zip(totals, scorer.languages, strict=True), reverse=True)
    expected = codes[block.side]
    others = (code for _, code in ranked if code not in codes and not confusable(code, expected))
    return replace(block, language=next(others))


def _evidence(
    scorer: LineScorer, sides: Sequence[Sequence[str]], scores: Sequence[Array], codes: Sequence[str]
) -> Iterator[tuple[int | None, str, Array]]:
    """Yield each side with each language that it should not be in, and the evidence for that in each line (N,)."""
    by_ngrams = [_by_ngrams(scorer, scores[side], codes[side]) for side in (0, 1)]
    swapped = [evidence.pop(codes[1 - side], None) for side, evidence in enumerate(by_ngrams)]
    for side in (0, 1):
        yield from ((side, language, gains) for language, gains in by_ngrams[side].items())
    if codes[0] == codes[1]:
        return
    if len(sides[0]) >= _MIN_PAIRS:
        learned = _by_corpus(scorer, sides, swapped)
        swapped = [new if old is None else (new + old) / 2 for new, old in zip(learned, swapped, strict=True)]
    if swapped[0] is not None and swapped[1] is not None:
        yield from ((0, codes[1], swapped[0]), (1, codes[0], swapped[1]), (None, "", swapped[0] + swapped[1]))


def _by_ngrams(scorer: LineScorer, scores: Array, expected: str) -> dict[str, Array]:
    """Return the evidence (N,) for each language against the expected one, close relatives left out."""
    columns = [column for column, code in enumerate(scorer.languages) if code == expected]
    if not columns:
        return {}
    expected_scores = scores[:, columns].max(axis=1)
    return {
        code: np.clip(scores[:, column] - expected_scores, -_BOUND, _BOUND)
        for column, code in enumerate(scorer.languages)
        if code != expected and not confusable(code, expected)
    }


def _by_corpus(scorer: LineScorer, sides: Sequence[Sequence[str]], swapped: Sequence[Array | None]) -> list[Array]:
    """Return the evidence of each side for the other side's language (N,), by the n-gram frequencies of this corpus.

    Examples of a language are the lines of its side, except those that py3langid surely takes for the other one.
    """
    stray = [np.zeros(len(sides[0]), np.bool_) if gains is None else gains > _SURE for gains in swapped]
    step = -(-len(sides[0]) // _LEARNED)
    texts = [np.array(side, object)[::step] for side in sides]
    counts = [
        scorer.count([*texts[side][~stray[side][::step]], *texts[1 - side][stray[1 - side][::step]]]) + 1.0
        for side in (0, 1)
    ]
    table = np.log(counts[1] / counts[1].sum()) - np.log(counts[0] / counts[0].sum())
    odds = [scorer.score(side, np.append(table, 0.0).astype(np.float32)[:, None])[:, 0] for side in sides]
    source, target = (np.concatenate([odds[side][~stray[side]], odds[1 - side][stray[1 - side]]]) for side in (0, 1))
    if not len(source) or not len(target):
        return [np.zeros(len(sides[0]))] * 2
    log_ratio = log_density_ratio(target, source)
    evidence = [np.clip(log_ratio(side), -_BOUND, _BOUND) for side in odds]
    return [evidence[0], -evidence[1]]


def _runs(gains: Array) -> Iterator[tuple[int, int, float]]:
    """Yield start, end and sum of each run of lines whose gains (N,) add up to `_MIN_EVIDENCE`."""
    sums = np.cumsum(gains)
    if (sums - np.minimum.accumulate(np.minimum(sums, 0.0))).max() < _MIN_EVIDENCE:
        return
    total = best = 0.0
    start = end = line = 0
    values = gains.tolist()
    while line < len(values):
        total += values[line]
        line += 1
        if total > best:
            best, end = total, line
        if total <= 0 or best - total >= _MIN_EVIDENCE or line == len(values):
            if best >= _MIN_EVIDENCE:
                yield start, end, best
                line = end
            total = best = 0.0
            start = line


def _blocks_of_names(
    blocks: Iterable[LanguageBlock], pairs: Sequence[Pair], codes: Sequence[str]
) -> set[LanguageBlock]:
    """Return the blocks with the same words on both sides, names or code, that are not translated elsewhere either."""
    words = {}
    for block in blocks:
        sample = pairs[block.start : block.end : 1 + (block.end - block.start) // _SAMPLED]
        if block.side is not None and _is_copied(sample):
            words[block] = [word for source, _ in sample for word in _words(source)]
    lines = {line for block in words for line in range(block.start, block.end)}
    wanted = set[str]().union(*words.values())
    seen, same = Counter[str](), Counter[str]()
    for line in range(0, len(pairs), 1 + len(pairs) // _LEARNED) if words else ():
        source, target = pairs[line]
        if line not in lines and (common := wanted & _words(source)):
            seen.update(common)
            same.update(common & _words(target))
    translated = {word for word in wanted if seen[word] > 2 and same[word] < 0.3 * seen[word]}
    return {
        block
        for block, sampled in words.items()
        if block.language not in codes or sum(word in translated for word in sampled) < _TRANSLATED * len(sampled)
    }


def _is_copied(pairs: Sequence[Pair]) -> bool:
    both = [(_words(source), _words(target)) for source, target in pairs]
    return sum(2 * len(source & target) >= min(len(source), len(target)) for source, target in both) > len(pairs) / 2


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text))
