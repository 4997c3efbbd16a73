"""Scores of training pairs by a model of each direction: is the target a translation of the source?

`forward` is the cross-entropy of the target given the source in nats per token, `backward` that of the source given the
target. `dual` is exp(-|forward - backward| - (forward + backward) / 2), from the dual conditional cross-entropy of
Junczys-Dowmunt 2018 (arXiv:1809.00197, equation 1). A hard sentence has a high cross-entropy whatever its translation,
so each pair is also scored with a sentence of another pair in the place of its source: `contrast` is by how much the
right one lowers it, the mean of both directions. It needs no correction for length.

    B pairs of a block, F features
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mt.console import log, progress
from mt.data.cleaning import pair_hash
from mt.data.corpus import Pair
from mt.data.lexicon import Side, word_translations, words_in
from mt.errors import InputError, require_package
from mt.extras.doctor.bitexts import Bitext, read_bitext
from mt.extras.doctor.findings import Findings
from mt.extras.doctor.line_languages import confidences, scorer_for, undetectable
from mt.extras.doctor.rules import PREVENTING
from mt.extras.planning.corpus_sample import EvenSample
from mt.storage import atomic
from mt.storage.resumable_file import ResumableFile
from mt.text.languages import base_language

# Log-probability and number of tokens of the second sentence given the first; None where the model takes no such pair.
Scorer = Callable[[Sequence[Pair]], Iterable[tuple[float, int] | None]]
Similarity = Callable[[Sequence[Pair]], Iterable[float]]

RAW_COLUMNS = (
    "source_number", "line", "pair", "forward", "backward", "forward_contrast", "backward_contrast", "lexicon", "ratio",
    "source_language", "target_language", "similarity",
)  # fmt: skip
RANDOM_LINE = 0  # of pairs put together at random: their scores are those of wrong translations

_BLOCK = 2_000  # pairs scored together, and lost at most when the process is killed
_LEXICON_SAMPLE = 40_000  # pairs
_RANDOM_PAIRS = 10_000  # wanted; there are more for a large text, at least one for every 20 pairs

_EPOCHS, _BYTES_A_STEP = 6, 8_500  # of target text in batches of 2,048 tokens, padding counted
_STEPS = 500, 1_500
_HELD_OUT = 200


def word_coverage(pairs: Sequence[Pair]) -> Callable[[Pair], float]:
    """Return the share of both sides' distinct words with a translation on the other side, as a function of a pair.

    The translations are learned from pairs most of which are right (IBM Model 1).
    """
    source, target = (Side(pair[side] for pair in pairs) for side in (0, 1))
    forward, backward = word_translations(source, target), word_translations(target, source)

    def coverage(pair: Pair) -> float:
        src, tgt = (frozenset(words_in(side)) for side in pair)
        total = len(src) + len(tgt)
        covered = len(_reached(src, forward) & tgt) + len(_reached(tgt, backward) & src)
        return covered / total if total else 0.0

    return coverage


def _reached(words: frozenset[str], lexicon: dict[str, list[str]]) -> set[str]:
    return {translation for word in words for translation in lexicon.get(word, ())}


class CorpusFacts(NamedTuple):
    """Results of a first reading of the training text."""

    sizes: list[int]  # pairs of each source
    digest: str
    coverage: dict[str, Callable[[Pair], float]]  # `word_coverage` by direction


def survey(bitexts: Sequence[Bitext]) -> CorpusFacts:
    """Count the pairs, hash them, and learn a lexicon for each direction.

    Raises InputError if there is no pair, or the text cannot be read to its end.
    """
    findings = Findings(1)
    digest, sizes = blake2b(digest_size=16), []
    samples = {bitext.direction: EvenSample[Pair](_LEXICON_SAMPLE) for bitext in bitexts}
    counts = dict.fromkeys(samples, 0)
    for bitext in bitexts:
        direction, before = bitext.direction, counts[bitext.direction]
        for raw in read_bitext(bitext, findings):
            pair = raw.cleaned()
            digest.update(pair_hash(*pair, direction))
            samples[direction].add(counts[direction], pair)
            counts[direction] += 1
        sizes.append(counts[direction] - before)
    if faults := [example for rule in PREVENTING for example in findings.examples_of(rule)]:
        raise InputError(f"the training text cannot be scored: {faults[0].note}", "see `mt data check`")
    if not sum(sizes):
        raise InputError("data.train: no pair to score")
    coverage = {direction: word_coverage(sample.items) for direction, sample in samples.items()}
    return CorpusFacts(sizes, digest.hexdigest(), coverage)


def score_pairs(
    bitexts: Sequence[Bitext],
    facts: CorpusFacts,
    scorers: dict[str, tuple[Scorer, Scorer]],
    path: Path,
    key: str,
    similarity: Similarity | None = None,
) -> None:
    """Write the features of all pairs to a table of `RAW_COLUMNS` without a header; the same call resumes.

    Args:
        scorers: forward and backward, by direction.
        path: of the table; it gets this name once it is complete, and a file with the key beside it.
        key: of the text and the models.
        similarity: of a pair's sentences, by a model of sentence embeddings.

    Raises InputError if the text is no longer as long as `facts` say.
    """
    finished = path.with_suffix(".key")
    if path.is_file() and finished.is_file() and finished.read_text(encoding="utf-8") == key:
        log.info("%s: resuming", path)
        return
    path.unlink(missing_ok=True)
    total = sum(facts.sizes)
    every = random_interval(total)
    with ResumableFile(path, key) as file, progress(total=total, unit="pair", desc="scoring", unit_scale=True) as bar:
        if file.lines:
            log.info("%s: resuming", path)
        done = 0
        for bitext, block in _blocks(bitexts, facts.sizes):
            done += len(block) + len(range(0, len(block), every))
            if done > file.lines:
                models, coverage = scorers[bitext.direction], facts.coverage[bitext.direction]
                file.append(list(_rows(bitext, block, every, models, coverage, similarity)))
            bar.update(len(block))
        atomic.write_text(finished, key)  # first, so that no kill leaves a complete table without it
        file.finish()


def random_interval(pairs: int) -> int:
    """Return n: of a text of so many pairs, every n-th target is also scored with a random source."""
    return min(max(pairs // _RANDOM_PAIRS, 1), 20)


def _blocks(bitexts: Sequence[Bitext], sizes: Sequence[int]) -> Iterator[tuple[Bitext, list[tuple[int, Pair]]]]:
    for bitext, size in zip(bitexts, sizes, strict=True):
        pairs = ((raw.line, raw.cleaned()) for raw in read_bitext(bitext))
        for start in range(0, size + 1, _BLOCK):  # one more, for a longer text that has full blocks only
            block = list(islice(pairs, _BLOCK))
            if len(block) != min(_BLOCK, size - start):
                raise InputError("data.train: the text changed while it was read", "run the command again")
            if block:
                yield bitext, block


def _rows(
    bitext: Bitext,
    block: Sequence[tuple[int, Pair]],
    every: int,
    scorers: tuple[Scorer, Scorer],
    coverage: Callable[[Pair], float],
    similarity: Similarity | None,
) -> Iterator[str]:
    """Yield a row for each pair, then one for every n-th target with a random source; `every` is n."""
    pairs = [pair for _, pair in block]
    lines = [line for line, _ in block] + [RANDOM_LINE] * len(range(0, len(block), every))
    other = _partners([src for src, _ in pairs])
    pairs += [(pairs[other[i]][0], pairs[i][1]) for i in range(0, len(block), every)]
    entropies = [_cross_entropies(scorer, pairs, side) for side, scorer in enumerate(scorers)]
    similarities = similarity(pairs) if similarity else [math.nan] * len(pairs)
    shares = list(_language_shares(bitext.languages, pairs))
    for number, (line, pair, similar) in enumerate(zip(lines, pairs, similarities, strict=True)):
        (forward, forward_contrast), (backward, backward_contrast) = (side[number] for side in entropies)
        ratio = len(pair[1]) / len(pair[0]) if pair[0] else math.nan
        scores = (forward, backward, forward_contrast, backward_contrast, coverage(pair), ratio)
        key = pair_hash(*pair, bitext.direction).hex()
        features = (*scores, *(side[number] for side in shares), similar)
        yield "\t".join([str(bitext.number), str(line), key, *(f"{x:.4g}" for x in features)])


def _cross_entropies(scorer: Scorer, pairs: Sequence[Pair], side: int) -> list[tuple[float, float]]:
    """Return for each pair its cross-entropy, and how much higher it is when another sentence is given.

    Both in nats per token; nan where the model takes no such pair, or there is no other sentence.
    """
    other = _partners([pair[side] for pair in pairs])
    right = [(pair[side], pair[1 - side]) for pair in pairs]
    wrong = [(pairs[other[i]][side], pair[1 - side]) for i, pair in enumerate(pairs)]
    scores = list(scorer([*right, *wrong]))
    results = []
    for given, changed, is_same in zip(scores[: len(pairs)], scores[len(pairs) :], map(eq, right, wrong), strict=True):
        entropy = math.nan if given is None else -given[0] / given[1]
        results.append((entropy, math.nan if changed is None or is_same else -changed[0] / changed[1] - entropy))
    return results


def _partners(sentences: Sequence[str]) -> NDArray[np.intp]:
    """Return for each of B sentences the index of another of similar length, the same in every process.

    Equal sentences have the same partner, which is not empty; a sentence without any other is its own partner.
    """
    places = {sentence: i for i, sentence in enumerate(sentences)}
    lengths = [int(4 * math.log2(1 + len(sentence))) for sentence in places]
    order = np.lexsort((np.random.default_rng(len(lengths)).random(len(lengths)), np.array(lengths)))
    rows = np.array(list(places.values()), np.intp)[order]
    others = np.roll(rows, 1)
    shortest = int("" in places)  # the place in `rows` of the shortest that is not empty
    others[: shortest + 1] = rows[min(shortest + 1, len(rows) - 1)]
    partner = dict(zip((sentences[row] for row in rows), others, strict=True))
    return np.array([partner[sentence] for sentence in sentences], np.intp)


def _language_shares(languages: tuple[str, str], pairs: Sequence[Pair]) -> Iterator[list[float]]:
    """Yield for each side the confidence that its sentences are in its language; nan where that cannot be known."""
    for side, code in enumerate(languages):
        if undetectable(code):
            yield [math.nan] * len(pairs)
            continue
        scorer = scorer_for(*languages)
        found = confidences(scorer.score([pair[side] for pair in pairs], scorer.table))
        columns = [language == base_language(code) for language in scorer.languages]
        yield found[:, columns].sum(axis=1).tolist()


def small_model(
    name: str, languages: tuple[str, str], root: str, train: list[dict[str, Any]], size: int, device: str
) -> dict[str, Any]:
    """Return the configuration of a model that learns for a few epochs only, before it memorises wrong pairs.

    `size`: of the target text, in bytes.
    """
    steps = min(max(_EPOCHS * size // _BYTES_A_STEP, _STEPS[0]), _STEPS[1])
    return {
        "name": name,
        "data": {
            "source_lang": languages[0], "target_lang": languages[1], "root": root, "train": train,
            "valid": {"from_train": _HELD_OUT}, "test": None,
        },
        "tokenizer": {"vocab_size": 8000},
        "model": {
            "d_model": 128, "n_heads": 4, "d_ff": 256, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.1,
            "norm": "pre",
        },
        "training": {
            "device": device, "max_tokens": 2048, "max_steps": steps, "optimizer": "muon", "learning_rate": 6.0e-3,
            "schedule": "cosine", "warmup_steps": 200, "validate_every": max(250, steps // 4), "report": False,
        },
    }  # fmt: skip


def embedding_similarity(folder: Path, device: str) -> Similarity:
    """Return the cosine similarity by a local model of sentence-transformers."""
    require_package("sentence_transformers", "--embeddings", "pip install sentence-transformers")
    if not folder.is_dir():
        raise InputError(f"--embeddings {folder}: no such folder", "name the folder of a model")
    from sentence_transformers import SentenceTransformer

    from mt.system.devices import choose_device

    model = SentenceTransformer(str(folder), device=str(choose_device(device, "--device")), local_files_only=True)

    def similarity(pairs: Sequence[Pair]) -> list[float]:
        source, target = (model.encode([p[side] for p in pairs], normalize_embeddings=True) for side in (0, 1))
        return [float(x) for x in (source * target).sum(axis=1)]

    return similarity
