"""The CTranslate2 engine: the model folder's own fast engine, without torch.

It searches as `mt.decoding.search` does, by the same rules and to the same scores; see docs/design.md.
"""

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import ctranslate2

from mt.data.tokenizer import EOS, PAD, SOS, TokenizerPair
from mt.decoding.engine import NOTHING, Hypothesis, SearchOptions, UnusableError, batches_of
from mt.errors import InputError, MachineError
from mt.system.cpus import usable_cores

# Sentences in a batch, as measured (docs/performance.md): the fewer share a shortlist, the shorter it is.
_BATCH, _SHORTLIST_BATCH = 64, 8


def supported(compute_type: str, device: str) -> bool:
    """Whether this machine can compute in a number format.

    Raises:
        UnusableError: this CTranslate2 was not built for the device.
    """
    try:
        return compute_type in ctranslate2.get_supported_compute_types(device)
    except (ValueError, RuntimeError) as error:
        raise UnusableError(f"CTranslate2 cannot use {device} here ({error})") from None


def cpu_cores() -> int:
    """The cores this process may use; OMP_NUM_THREADS lowers it."""
    cores = usable_cores()
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdecimal() and int(wanted) > 0 else cores


def _check_vocabulary(folder: Path, source: Sequence[str], target: Sequence[str]) -> None:
    """The library looks tokens up by their names, so its vocabularies must be the tokenizers'.

    Raises:
        UnusableError: they are not.
    """
    shared = folder / "shared_vocabulary.json"
    files = (
        [shared, shared] if shared.is_file() else [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
    )
    for path, pieces in zip(files, (source, target), strict=True):
        try:
            same = json.loads(path.read_bytes()) == pieces
        except (OSError, ValueError, RecursionError):
            same = False
        if not same:
            raise UnusableError(f"{path}: not the vocabulary of the model's tokenizer")


@dataclass(frozen=True)
class _Answer:
    """What the library found for a sentence, copied once; it copies each time it is asked."""

    hypotheses: list[list[str]]
    scores: list[float]
    attentions: list[Any]

    @classmethod
    def of(cls, result: Any) -> "_Answer":
        hypotheses = result.hypotheses
        nothing = [None] * len(hypotheses)
        return cls(hypotheses, result.scores or [math.nan] * len(hypotheses), result.attention or nothing)


def _grouped(rows: Sequence[int], bounds: Sequence[int]) -> list[list[int]]:
    """Rows that may be as long as one another."""
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(bounds[row], []).append(row)
    return list(groups.values())


class CTranslate2Engine:
    """Translates any number of sentences with a converted model.

    Args:
        folder: a CTranslate2 model.
        tokenizers: those of the model.
        max_positions: the length of the model's position tables.
        batch_tokens: source tokens of a batch, padding counted.
        device: cpu or cuda.
        compute_type: the format of its numbers, `supported` there.
        shortlist: whether to choose target tokens from the vocabulary map only.
        one_by_one: sentences are to come one at a time, so that all cores work on each; otherwise each core translates
            batches of its own, which takes less time for many. Threads of 8-bit products are slower together than one.

    Raises:
        UnusableError: CTranslate2 refuses the folder.
    """

    def __init__(
        self,
        folder: Path,
        tokenizers: TokenizerPair,
        max_positions: int,
        batch_tokens: int,
        *,
        device: str = "cpu",
        compute_type: str = "float32",
        shortlist: bool = False,
        one_by_one: bool = False,
    ) -> None:
        in_int8 = "int8" in compute_type
        self._workers, threads = (1, 1 if in_int8 else cpu_cores()) if one_by_one else (cpu_cores(), 1)
        if device != "cpu":
            self._workers = 1
        source, target = (t.tokens(range(t.vocab_size)) for t in (tokenizers.source, tokenizers.target))
        _check_vocabulary(folder, source, target)
        try:
            self._translator = ctranslate2.Translator(
                str(folder),
                device=device,
                compute_type=compute_type,
                inter_threads=self._workers,
                intra_threads=threads,
            )
        except Exception as error:  # whatever its C++ threw: RuntimeError, ValueError, IndexError, ...
            raise UnusableError(f"CTranslate2 {ctranslate2.__version__} cannot load {folder} ({error})") from None
        self._source_pieces = source
        self._target_ids = {piece: i for i, piece in enumerate(target)}
        self._max_positions = max_positions
        self._batch_tokens = batch_tokens
        self._shortlist = shortlist
        self._batch = _SHORTLIST_BATCH if shortlist else _BATCH

    def translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        """Token ids without specials to the n best hypotheses of each, in the order given.

        Raises:
            InputError: the library cannot translate with this model after all.
            MachineError: there is not enough memory.
        """
        try:
            return self._translate(sentences, options)
        except (RuntimeError, ValueError, IndexError) as error:  # what its C++ throws
            if "out of memory" in str(error):
                raise MachineError(f"CTranslate2: {error}", "lower decoding.batch_tokens of the model") from None
            raise InputError(f"CTranslate2 cannot translate with this model: {error}", "use --engine torch") from None

    def _translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        bounds = [self._bound(ids, options) for ids in sentences]
        search = partial(self._search, sentences, bounds, options)
        answers = search([range(len(sentences))], self._wanted(options), 1)
        # The batches of these had room for longer ones; it must not matter in whose company a sentence is translated.
        long = [row for row, found in answers.items() if any(len(p) > bounds[row] + 1 for p in found.hypotheses)]
        answers |= search(_grouped(long, bounds), self._wanted(options), 1)
        # These reached their bound: stop them there, and see all that ended before beside all that are made to end.
        more = 1 if options.beam_size == 1 else 2
        cut = [row for row, found in answers.items() if any(p[-1] != EOS for p in found.hypotheses)]
        answers |= search(_grouped(cut, bounds), more * options.beam_size, 0, more)
        results = [[NOTHING] for _ in sentences]
        for row, found in answers.items():
            results[row] = self._hypotheses(sentences[row], found, options)
        return results

    def _search(
        self,
        sentences: Sequence[Sequence[int]],
        bounds: Sequence[int],
        options: SearchOptions,
        groups: Iterable[Sequence[int]],
        wanted: int,
        beyond: int,
        patience: int = 1,
    ) -> dict[int, _Answer]:
        """Searches once for each row of groups; those of one group share batches.

        Args:
            sentences: token ids of all rows.
            bounds: the most tokens of each row's translation, without EOS.
            options: how to search.
            groups: rows of the sentences. Each batch may go to the largest bound in it.
            wanted: hypotheses to return.
            beyond: tokens that may follow after the bound: one where the last must be EOS.
            patience: stop when so many times the beam size have ended.
        """
        submitted = []
        for group in groups:
            most = min(self._batch, -(-len(group) // self._workers))  # all workers get something
            for places in batches_of([sentences[row] for row in group], self._batch_tokens, most):
                rows = [group[place] for place in places]
                steps = max(bounds[row] for row in rows) + beyond
                submitted.append(
                    (rows, self._submit([sentences[row] for row in rows], options, steps, wanted, patience))
                )
        return {
            row: _Answer.of(one.result()) for rows, pending in submitted for row, one in zip(rows, pending, strict=True)
        }

    def _bound(self, ids: Sequence[int], options: SearchOptions) -> int:
        return options.longest(len(ids) + 2, self._max_positions)

    @staticmethod
    def _wanted(options: SearchOptions) -> int:
        # Without a penalty the library stops once so many have ended and one of them was the best at its end.
        return options.beam_size if options.length_penalty == 0 else options.n_best

    def _submit(
        self, sentences: Sequence[Sequence[int]], options: SearchOptions, steps: int, wanted: int, patience: int = 1
    ) -> list[Any]:
        """Hands a batch to the workers; the answers come later.

        Args:
            sentences: token ids.
            options: how to search.
            steps: the most tokens of a hypothesis, EOS counted.
            wanted: hypotheses to return.
            patience: stop when so many times the beam size have ended.
        """
        answers: list[Any] = self._translator.translate_batch(
            [[self._source_pieces[i] for i in ids] for ids in sentences],
            asynchronous=True,
            beam_size=options.beam_size,
            patience=patience,
            length_penalty=options.length_penalty,
            num_hypotheses=wanted,
            min_decoding_length=options.min_length,
            max_decoding_length=steps,
            max_input_length=0,
            disable_unk=True,
            suppress_sequences=[[PAD], [SOS]],
            return_scores=options.scores or options.beam_size > 1,  # beam search has them anyway
            return_end_token=True,
            return_attention=options.attention,
            use_vmap=self._shortlist,
        )
        return answers

    def _hypotheses(self, source: Sequence[int], answer: _Answer, options: SearchOptions) -> list[Hypothesis]:
        found: dict[tuple[int, ...], Hypothesis] = {}
        for pieces, score, attention in zip(answer.hypotheses, answer.scores, answer.attentions, strict=True):
            log_prob = score * len(pieces) ** options.length_penalty
            if pieces[-1] == EOS:
                pieces = pieces[:-1]
            else:
                log_prob += self._end(source, pieces)
            ids = [self._target_ids[piece] for piece in pieces]
            # A beam wider than what there is to find may find a thing twice.
            hypothesis = Hypothesis.of(ids, log_prob, options.length_penalty)
            found.setdefault(tuple(ids), replace(hypothesis, attention=attention))
        return sorted(found.values(), key=lambda h: -h.score)[: options.n_best]

    def _end(self, source: Sequence[int], pieces: list[str]) -> float:
        """The log-probability that a translation ends behind these pieces."""
        sources = [[self._source_pieces[i] for i in source]]
        [scored] = self._translator.score_batch(sources, [pieces], max_input_length=0)
        return float(scored.log_probs[-1])
