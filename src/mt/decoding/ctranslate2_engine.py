"""The CTranslate2 engine: the model folder's own fast engine, without torch.

It searches as `mt.decoding.search` does, by the same rules and to the same scores; see docs/design.md.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2

from mt.data.tokenizer import EOS, PAD, SOS, TokenizerPair
from mt.decoding.engine import Hypothesis, SearchOptions, UnusableError, batches_of

# Sentences in a batch, by what was measured (docs/performance.md): larger ones leave the processor's caches.
_BATCH = 32


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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdecimal() and int(wanted) > 0 else cores


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
        one_by_one: all cores work on one sentence; otherwise each core takes a batch of its own, which translates many
            sentences faster.

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
        workers, threads = (1, cpu_cores()) if one_by_one else (cpu_cores(), 1)
        try:
            self._translator = ctranslate2.Translator(
                str(folder),
                device=device,
                compute_type=compute_type,
                inter_threads=workers if device == "cpu" else 1,
                intra_threads=threads,
            )
        except (RuntimeError, ValueError) as error:
            raise UnusableError(f"CTranslate2 {ctranslate2.__version__} cannot load {folder} ({error})") from None
        source, target = tokenizers.source, tokenizers.target
        self._source_pieces = source.tokens(range(source.vocab_size))
        self._target_pieces = target.tokens(range(target.vocab_size)) if target is not source else self._source_pieces
        self._target_ids = {piece: i for i, piece in enumerate(self._target_pieces)}
        self._max_positions = max_positions
        self._batch_tokens = batch_tokens
        self._shortlist = shortlist

    def translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        """Token ids without specials to the n best hypotheses of each, in the order given."""
        results: list[list[Hypothesis]] = [[] for _ in sentences]
        batches = batches_of(sentences, self._batch_tokens, _BATCH)
        submitted = [(rows, self._submit([sentences[i] for i in rows], options)) for rows in batches]
        for rows, pending in submitted:
            for row, answer in zip(rows, pending, strict=True):
                results[row] = self._hypotheses(sentences[row], answer.result(), options)
        return results

    def _submit(
        self, sentences: Sequence[Sequence[int]], options: SearchOptions, longest: int | None = None
    ) -> list[Any]:
        """Hands a batch to the workers; the answers come later.

        Args:
            sentences: token ids.
            options: how to search.
            longest: stop all hypotheses at so many tokens; None: let each end by itself within the largest bound.
        """
        # EOS counts in the library's bound.
        steps = longest or 1 + max(self._bound(ids, options) for ids in sentences)
        # Without a penalty the library stops once so many have ended and one of them was the best at its end.
        wanted = options.beam_size if longest or options.length_penalty == 0 else options.n_best
        answers: list[Any] = self._translator.translate_batch(
            [[self._source_pieces[i] for i in ids] for ids in sentences],
            asynchronous=True,
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            num_hypotheses=wanted,
            min_decoding_length=options.min_length,
            max_decoding_length=steps,
            max_input_length=0,
            disable_unk=True,
            suppress_sequences=[[PAD], [SOS]],
            return_scores=True,
            return_end_token=True,
            use_vmap=self._shortlist,
        )
        return answers

    def _bound(self, ids: Sequence[int], options: SearchOptions) -> int:
        return options.longest(len(ids) + 2, self._max_positions)

    def _hypotheses(self, source: Sequence[int], answer: Any, options: SearchOptions) -> list[Hypothesis]:
        bound = self._bound(source, options)
        if any(len(pieces) > bound + 1 or pieces[-1] != EOS for pieces in answer.hypotheses):
            # It would go on for longer than it may, perhaps in the company of sentences that may: stop it there.
            answer = self._submit([source], options, longest=bound)[0].result()
        found = []
        for pieces, score in zip(answer.hypotheses, answer.scores, strict=True):
            if pieces[-1] == EOS:
                ids = [self._target_ids[piece] for piece in pieces[:-1]]
                log_prob = score * len(pieces) ** options.length_penalty
            else:  # it is made to end
                ids = [self._target_ids[piece] for piece in pieces]
                log_prob = self._forced(source, pieces)
            found.append(Hypothesis.of(ids, log_prob, options.length_penalty))
        return sorted(found, key=lambda h: -h.score)[: options.n_best]

    def _forced(self, source: Sequence[int], pieces: list[str]) -> float:
        """The log-probability of a given translation, EOS included."""
        [scored] = self._translator.score_batch(
            [[self._source_pieces[i] for i in source]], [pieces], max_input_length=0
        )
        return float(sum(scored.log_probs))
