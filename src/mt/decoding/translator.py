"""Strings in, strings out: tokenizer, engine, and what lies between."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mt.console import log
from mt.data.tokenizer import TokenizerPair, normalized
from mt.decoding.alignment import Unit, units_from
from mt.decoding.engine import Engine, Hypothesis, SearchOptions
from mt.decoding.long_input import split_long
from mt.decoding.shared_engine import SharedEngine
from mt.errors import InputError
from mt.system.distributed import Distributed
from mt.text.languages import chosen_language, is_spaced

_CANDIDATES_AT_ONCE = 100_000


class Part(NamedTuple):
    """A part of a line in tokens: those that went into the model, those that came out, and their attention."""

    source: Sequence[int]
    target: Sequence[int]
    attention: list[list[float]] | None


@dataclass(frozen=True)
class Candidate:
    """One translation of a line.

    Attributes:
        score: what it was ranked by.
        parts: of a line that was too long for the model several.
    """

    text: str
    score: float
    log_prob: float
    parts: tuple[Part, ...] = field(default=(), compare=False, repr=False)


def lines_at_once(most: int, candidates: int) -> int:
    """How many lines to translate together where each has so many candidates, which are all in memory."""
    return max(1, min(most, _CANDIDATES_AT_ONCE // candidates))


def distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first candidate of each text: a model may spell one in several ways, above all after BPE-dropout."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.text, candidate)
    return list(first.values())


class Translator:
    """Translates lines of text.

    Args:
        engine: does the search.
        tokenizers: of both languages.
        max_source_tokens: what the model was trained to take, specials counted; longer lines are translated in parts.
        target_langs: the languages that the model translates into.
        chosen: the one of them to translate into; None where it is the only one, or is still to be chosen with `to`.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizers: TokenizerPair,
        max_source_tokens: int,
        target_langs: Sequence[str],
        chosen: str | None = None,
    ) -> None:
        self._engine = engine
        self._tokenizers = tokenizers
        self._max_source_tokens = max_source_tokens
        self._target_langs = tuple(target_langs)
        self._chosen = chosen or (target_langs[0] if len(target_langs) == 1 else None)
        self._tag = [] if self._chosen is None else self._tag_of(self._chosen)
        self._limit = max_source_tokens - 2 - len(self._tag)
        # Parts of a long text are joined as sentences are.
        self._joint = " " if self._chosen is None or is_spaced(self._chosen) else ""

    def shared(self, distributed: Distributed) -> "Translator":
        """The same translator, whose work the processes share."""
        engine = SharedEngine(self._engine, distributed)
        return Translator(engine, self._tokenizers, self._max_source_tokens, self._target_langs, self._chosen)

    def to(self, target_lang: str | None) -> "Translator":
        """The same translator into one of its languages; None is the only one.

        Raises:
            InputError: the model does not translate into that language, or into several and none is named.
        """
        if target_lang == self._chosen and target_lang is not None:
            return self
        if target_lang is None and self._chosen is not None:
            return self
        chosen = chosen_language(self._target_langs, target_lang)
        return Translator(self._engine, self._tokenizers, self._max_source_tokens, self._target_langs, chosen)

    def units(self, line: str, candidate: Candidate) -> list[Unit]:
        """Which places of a line the words of its translation come from; it must have been made with attention."""
        if len(candidate.parts) != 1:
            return units_from(line, candidate.text)
        source, target, attention = candidate.parts[0]
        skipped = len(self._tag)
        pieces = self._tokenizers.source.tokens(source[skipped:]), self._tokenizers.target.tokens(target)
        rows = None if attention is None else [row[skipped:] for row in attention]
        return units_from(line, candidate.text, pieces, rows)

    @property
    def joint(self) -> str:
        """What stands between two sentences of the output."""
        return self._joint

    @property
    def tag(self) -> list[int]:
        """The token that source sentences begin with, to ask for the language; none where there is no choice."""
        return list(self._tag)

    @property
    def target_lang(self) -> str:
        """The language of the output.

        Raises:
            InputError: it is still to be chosen.
        """
        chosen = self.to(None)._chosen
        assert chosen is not None
        return chosen

    def _tag_of(self, target_lang: str) -> list[int]:
        """The token that asks for a language; none where the model never had a choice."""
        tag = self._tokenizers.source.tags.get(target_lang)
        if tag is None and len(self._target_langs) > 1:
            raise InputError(f"the model's tokenizer has no tag for {target_lang}, so it cannot be asked for it")
        return [] if tag is None else [tag]

    def translate(
        self, lines: Sequence[str], options: SearchOptions, first_line: int | None = 1
    ) -> list[list[Candidate]]:
        """The n best translations of each line, best first; an empty line gives one empty translation.

        Args:
            lines: what to translate.
            options: how to search.
            first_line: the number of the first line, for warnings of those too long; None: no warnings.

        Raises:
            InputError: the language is still to be chosen.
        """
        self.to(None)  # refuses where a language is still to be chosen
        parts = [self._parts(line) for line in lines]
        if first_line is not None:
            for number, cut in enumerate(parts, first_line):
                if len(cut) > 1:
                    log.warning("line %d is longer than the model takes; translated in %d parts", number, len(cut))
        encoded = self._tokenizers.source.encode_batch([part for line in parts for part in line])
        ids = [self._tag + sentence for sentence in encoded] if self._tag else encoded
        found = zip(ids, self._engine.translate(ids, options), strict=True)
        return [self._joined([next(found) for _ in line]) for line in parts]

    def best(self, lines: Sequence[str], options: SearchOptions) -> list[str]:
        """The best translation of each line."""
        return [candidates[0].text for candidates in self.translate(lines, replace(options, scores=False), None)]

    def tell_of_long(self, lines: Sequence[str], text: str) -> None:
        """Says once of a text that is translated many times which of its lines are too long."""
        cut = [number for number, line in enumerate(lines, 1) if len(self._parts(line)) > 1]
        if cut:
            log.warning(
                "%s: %d of %d lines are longer than the model takes, line %d the first; translated in parts",
                text,
                len(cut),
                len(lines),
                cut[0],
            )

    def _parts(self, line: str) -> list[str]:
        text = normalized(line)  # in which a character has at most 4 tokens, its bytes
        if not text:
            return []
        if 4 * len(text) + 1 <= self._limit:
            return [text]
        return split_long(text, self._count_tokens, self._limit)

    def _count_tokens(self, text: str) -> int:
        return len(self._tokenizers.source.encode_batch([text], self._limit)[0])

    def _joined(self, parts: list[tuple[Sequence[int], list[Hypothesis]]]) -> list[Candidate]:
        """Joins the parts of a line, each its source tokens and what was found: best with best, second with second."""
        if not parts:
            return [Candidate("", 0.0, 0.0)]
        candidates = []
        for rank in range(max(len(hypotheses) for _, hypotheses in parts)):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for _, hypotheses in parts]
            texts = self._tokenizers.target.decode_batch([h.ids for h in chosen])
            joined = self._joint.join(text.strip() for text in texts)
            # A model can spell a line break in bytes; one line in must stay one line out.
            one_line = joined.replace("\r", " ").replace("\n", " ")
            tokens = tuple(Part(source, h.ids, h.attention) for (source, _), h in zip(parts, chosen, strict=True))
            score, log_prob = sum(h.score for h in chosen), sum(h.log_prob for h in chosen)
            candidates.append(Candidate(one_line, score, log_prob, tokens))
        return candidates
