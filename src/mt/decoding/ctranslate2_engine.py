"""The CTranslate2 engine: fast search with a converted model, without torch.

It follows the rules of `mt.decoding.search` and finds the same scores; see docs/design.md.
"""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2 import DataType, Device
from numpy.typing import NDArray

from mt.data.tokenizer import EOS_ID, PAD, SOS
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import (
    EMPTY_HYPOTHESIS,
    Hypothesis,
    SearchOptions,
    Sentences,
    UnusableError,
    batch_by_length,
    log_prob_batches,
)
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError, MachineError
from mt.system.cpus import cpu_cores

# Sentences per batch, as measured (docs/lab/decoding_speed.md). The fewer share a shortlist, the shorter it is.
_BATCH, _SHORTLIST_BATCH = 64, 8
_BATCHES_PER_WORKER, _MIN_BATCH = 4, 8  # smaller batches are slow

_RULES: dict[str, Any] = {"max_input_length": 0, "disable_unk": True, "suppress_sequences": [[PAD], [SOS]]}
_RawHypothesis = tuple[list[int], float, Any]  # ids, also of EOS if it was reached, score and attention
_Stopped = tuple[int, tuple[int, ...]]  # row and ids of a translation that was stopped before EOS


def is_supported(compute_type: str, device: str) -> bool:
    """Return True where this machine can compute in a number format.

    Raises:
        UnusableError: this CTranslate2 was not built for the device.
    """
    try:
        return compute_type in ctranslate2.get_supported_compute_types(device)
    except (ValueError, RuntimeError) as error:
        raise UnusableError(f"CTranslate2 cannot use {device} here ({error})") from None


def batch_sentences(n_sentences: int, n_workers: int, largest: int) -> int:
    """Return how many sentences make a batch.

    Each worker gets some sentences, and several batches where there are enough: one with long sentences takes longer.
    """
    share = -(-n_sentences // n_workers)
    if n_workers > 1:
        share = max(min(share, _MIN_BATCH), -(-share // _BATCHES_PER_WORKER))
    return min(largest, share)


def _check_vocabulary(folder: Path, source: Sequence[str], target: Sequence[str]) -> None:
    """Check that the library's vocabularies, in which it looks up tokens by name, are the tokenizers'."""
    shared = folder / "shared_vocabulary.json"
    for side, pieces in (("source", source), ("target", target)):
        path = shared if shared.is_file() else folder / f"{side}_vocabulary.json"
        try:
            matches = json.loads(path.read_bytes()) == pieces
        except (OSError, ValueError, RecursionError):
            matches = False
        if not matches:
            raise UnusableError(f"{path}: not the vocabulary of the model's tokenizer")


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of the library into `InputError`, or `MachineError` without enough memory or CUDA's libraries."""
    try:
        yield
    except (RuntimeError, ValueError, IndexError) as error:  # from its C++
        if "out of memory" in str(error):
            raise MachineError(f"CTranslate2: {error}", "lower decoding.batch_tokens of the model") from None
        if "cannot be loaded" in str(error):
            raise MachineError(f"CTranslate2: {error}", "install CUDA 12's cuBLAS, or use --device cpu") from None
        raise InputError(f"CTranslate2 cannot translate with this model: {error}", "use --engine torch") from None


class CTranslate2Engine:
    """Translates any number of sentences with the converted model in a folder.

    Args:
        compute_type: a number format that `is_supported` on the device, cpu or cuda.
        shortlist: choose target tokens from the vocabulary map only.
        one_by_one: use all cores for each sentence, as they come one at a time; otherwise each core translates batches
            of its own, which is faster for many. With int8, one thread is faster than several.

    Raises:
        UnusableError: CTranslate2 cannot load the folder.
    """

    def __init__(
        self,
        folder: Path,
        tokenizers: TokenizerPair,
        settings: TranslationSettings,
        *,
        device: str = "cpu",
        compute_type: str = "float32",
        shortlist: bool = False,
        one_by_one: bool = False,
    ) -> None:
        threads_alone = 1 if "int8" in compute_type else cpu_cores()
        self._workers, threads = (1, threads_alone) if one_by_one else (cpu_cores(), 1)
        if device != "cpu":
            self._workers = 1
        self._source_pieces, self._target_pieces = (t.pieces for t in tokenizers)
        _check_vocabulary(folder, self._source_pieces, self._target_pieces)
        try:
            self._translator = ctranslate2.Translator(
                str(folder),
                device=device,
                compute_type=compute_type,
                inter_threads=self._workers,
                intra_threads=threads,
            )
        except Exception as error:  # its C++ raises RuntimeError, ValueError, IndexError, ...
            raise UnusableError(f"CTranslate2 {ctranslate2.__version__} cannot load {folder} ({error})") from None
        self._target_ids = {piece: i for i, piece in enumerate(self._target_pieces)}
        self._settings = settings
        self._shortlist = shortlist

    @_explained()
    def translate(
        self, sentences: Sentences, options: SearchOptions, prefixes: Sentences = ()
    ) -> list[list[Hypothesis]]:
        found = self._translate(sentences, options, prefixes)
        # In a batch, beam search returns another sentence's first row of attention. It depends on the source alone.
        if options.attention and options.beam_size > 1 and not self._settings.guided:  # whose first row is dropped
            greedy = replace(options, beam_size=1, min_length=0)
            first = self._search(sentences, [1] * len(sentences), greedy, (), [range(len(sentences))], 1, 0)
            for row, [(_, _, rows)] in first.items():
                found[row] = [replace(h, attention=[rows[0], *(h.attention or ())[1:]]) for h in found[row]]
        return found

    def next_log_probs(self, sentences: Sentences, targets: Sentences) -> Iterator[NDArray[np.float32]]:
        for sources, batch in log_prob_batches(len(self._target_pieces), sentences, targets):
            with _explained():
                results = self._translator.translate_batch(
                    [[self._source_pieces[i] for i in source] for source in sources],
                    [[self._target_pieces[i] for i in target] for target in batch],
                    beam_size=1,
                    min_decoding_length=0,
                    max_decoding_length=max(map(len, batch)) + 1,
                    **_RULES,
                    return_logits_vocab=True,
                )
            for result, target in zip(results, batch, strict=True):
                rows = (row.to(DataType.float32).to_device(Device.cpu) for row in result.logits[0][: len(target) + 1])
                logits = np.stack([np.asarray(row) for row in rows])
                logits -= logits.max(axis=1, keepdims=True)
                yield logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def _translate(self, sentences: Sentences, options: SearchOptions, prefixes: Sentences) -> list[list[Hypothesis]]:
        bounds = [options.longest(len(ids) + 2, self._settings.max_positions) for ids in sentences]

        def by_bound(rows: Iterable[int]) -> list[list[int]]:
            return [list(group) for _, group in groupby(sorted(rows, key=bounds.__getitem__), bounds.__getitem__)]

        run = partial(self._search, sentences, bounds, options, prefixes)
        # Without a penalty the library stops once n_best have ended and one of them was the best at its end.
        n_best = options.beam_size if options.length_penalty == 0 else options.n_best
        results = run([range(len(sentences))], n_best, 1)
        # A batch searches up to its largest bound. Sentences that went beyond their own are searched again, so that
        # no result depends on the other sentences of its batch.
        overlong = [row for row, found in results.items() if any(len(ids) > bounds[row] + 1 for ids, *_ in found)]
        results |= run(by_bound(overlong), n_best, 1)
        # Where the bound was reached, stop there, and rank all that ended before with all that are forced to end.
        patience = 1 if options.beam_size == 1 else 2
        cut = [row for row, found in results.items() if any(ids[-1] != EOS_ID for ids, *_ in found)]
        results |= run(by_bound(cut), patience * options.beam_size, 0, patience)
        stopped = [(row, tuple(ids)) for row in cut for ids, *_ in results[row] if ids[-1] != EOS_ID]
        ends = self._end_log_probs(sentences, stopped, options.no_repeat_ngram_size) if options.has_scores else {}
        translations = [[EMPTY_HYPOTHESIS] for _ in sentences]
        for row, found in results.items():
            translations[row] = self._hypotheses(row, found, options, ends)
        return translations

    def _search(
        self,
        sentences: Sentences,
        bounds: Sequence[int],
        options: SearchOptions,
        prefixes: Sentences,
        groups: Iterable[Sequence[int]],
        n_best: int,
        extra: int,
        patience: int = 1,
    ) -> dict[int, list[_RawHypothesis]]:
        """Search once for each row of some groups; only rows of one group share batches.

        Rows with and without a prefix never do, as the library treats their second token differently. Prefixes are
        continued without a shortlist, since the library does not find their pieces in one.

        Translations may have `extra` tokens beyond a batch's largest bound: 1 where the last must be EOS. Search stops
        when patience * beam_size hypotheses have ended.
        """
        submitted: list[tuple[int, Any]] = []
        if prefixes:
            groups = [[r for r in g if bool(prefixes[r]) == prefixed] for g in groups for prefixed in (True, False)]
        for group in filter(None, groups):
            shortlist = self._shortlist and not (prefixes and prefixes[group[0]])
            max_sentences = batch_sentences(len(group), self._workers, _SHORTLIST_BATCH if shortlist else _BATCH)
            lengths = [len(sentences[row]) + 2 if sentences[row] else 0 for row in group]
            for batch in batch_by_length(lengths, self._settings.batch_tokens, max_sentences):
                rows = [group[i] for i in batch]
                pending = self._translator.translate_batch(
                    [[self._source_pieces[i] for i in sentences[row]] for row in rows],
                    [[self._target_pieces[i] for i in prefixes[row]] for row in rows if prefixes] or None,
                    asynchronous=True,
                    beam_size=options.beam_size,
                    patience=patience,
                    length_penalty=options.length_penalty,
                    num_hypotheses=n_best,
                    min_decoding_length=options.min_length,
                    max_decoding_length=max(bounds[row] for row in rows) + extra,
                    no_repeat_ngram_size=options.no_repeat_ngram_size,
                    return_scores=options.has_scores,
                    return_end_token=True,
                    return_attention=options.attention,
                    use_vmap=shortlist,
                    **_RULES,
                )
                submitted += zip(rows, pending, strict=True)
        return {row: self._read(pending.result()) for row, pending in submitted}

    def _read(self, result: Any) -> list[_RawHypothesis]:
        """Read a result of the library, whose objects copy their fields on every access."""
        hypotheses = [[self._target_ids[piece] for piece in pieces] for pieces in result.hypotheses]
        scores = result.scores or [math.nan] * len(hypotheses)
        return list(zip(hypotheses, scores, result.attention or [None] * len(hypotheses), strict=True))

    def _hypotheses(
        self, row: int, found: list[_RawHypothesis], options: SearchOptions, ends: Mapping[_Stopped, float]
    ) -> list[Hypothesis]:
        """Return the n best of a row; those that were stopped get the log-probability of EOS, if known, from `ends`."""
        hypotheses: dict[tuple[int, ...], Hypothesis] = {}
        for ids, score, attention in found:
            log_prob = score * len(ids) ** options.length_penalty
            if ids[-1] == EOS_ID:
                ids = ids[:-1]
            else:
                log_prob += ends.get((row, tuple(ids)), math.nan)
            # A beam wider than the search space may return a hypothesis twice.
            hypothesis = Hypothesis.of(ids, log_prob, options.length_penalty)
            hypotheses.setdefault(tuple(ids), replace(hypothesis, attention=attention))
        return sorted(hypotheses.values(), key=lambda h: -h.score)[: options.n_best]

    def _end_log_probs(
        self, sentences: Sentences, stopped: Sequence[_Stopped], no_repeat: int
    ) -> dict[_Stopped, float]:
        """Return the log-probability of EOS behind stopped translations; no n-gram of `no_repeat` may repeat."""
        ends = {}
        results = self.next_log_probs([sentences[row] for row, _ in stopped], [ids for _, ids in stopped])
        # In 64 bits, since little probability may remain beside a banned token.
        for (row, ids), log_probs in zip(stopped, (rows[-1].astype(np.float64) for rows in results), strict=True):
            starts = range(len(ids) - no_repeat + 1) if no_repeat else ()
            current = ids[len(ids) - no_repeat + 1 :]
            banned = [ids[i + no_repeat - 1] for i in starts if ids[i : i + no_repeat - 1] == current]
            log_probs[banned] = -math.inf
            ends[row, ids] = float(log_probs[EOS_ID] - np.logaddexp.reduce(log_probs))
        return ends
