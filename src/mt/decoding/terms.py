"""Translations that have given terms, by search that is forced to write them.

A sentence whose hypotheses lack a term is searched again: the term is forced at the places of the best hypothesis
where it costs least, and search continues freely behind it. Terms are placed from left to right, so what has been
placed stays, and every term gets its place unless the translation would become too long. Placeholders, which the model
would have to copy, are not needed (docs/lab/terms.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mt.data.tokenizer import EOS_ID, SPECIALS
from mt.decoding.engine import Engine, Hypothesis, SearchOptions
from mt.decoding.prefix import Prefix

if TYPE_CHECKING:
    from mt.data.glossary import Term
    from mt.data.tokenizer_kinds import TextTokenizer

_PLACES = 3  # that are tried for a term
_IMPOSSIBLE = -1e9


class Sentence(NamedTuple):
    """A source sentence as tokens, the beginning of its translation, and its terms."""

    source: Sequence[int]
    prefix: Prefix
    terms: "Sequence[Term]"


class _Job(NamedTuple):
    """The beginning of a translation up to a term and the token behind it, and the log-probability of that."""

    ids: list[int]
    log_prob: float


@dataclass
class TermSearch:
    """Search for translations that have given terms.

    Args:
        engine: searches, and gives the costs of tokens.
        tokenizer: of the target language.
        first: the token with which all translations begin, if there is one.
        is_spaced: whether the target language writes spaces between words.
    """

    engine: Engine
    tokenizer: "TextTokenizer"
    first: Sequence[int]
    is_spaced: bool

    def __post_init__(self) -> None:
        pieces = self.tokenizer.tokens(range(self.tokenizer.vocab_size))
        hidden = {*range(len(SPECIALS)), *self.tokenizer.byte_ids, *self.tokenizer.tags.values()}
        self._begins_word = np.array(
            [i not in hidden and not (self.is_spaced and piece[:1].isalnum()) for i, piece in enumerate(pieces)]
        )

    def missing(self, sentence: Sentence, ids: Sequence[int]) -> "list[Term]":
        """Return the terms that a translation lacks."""
        text = self.tokenizer.decode(ids).strip()
        return [term for term in sentence.terms if not term.is_in(text)]

    def complete(
        self,
        sentences: Sequence[Sentence],
        found: Sequence[list[Hypothesis]],
        options: SearchOptions,
        longest: Callable[[Sequence[int], SearchOptions], int],
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence that have its terms, or else one that was made to have them.

        Args:
            sentences: with terms.
            found: their hypotheses, best first.
            options: of the search.
            longest: returns the bound of a translation's tokens.
        """
        results = [
            [h for h in found[row] if not self.missing(sentence, h.ids)] for row, sentence in enumerate(sentences)
        ]
        best = {row: found[row][0] for row, hypotheses in enumerate(results) if not hypotheses}
        fixed = {row: len(sentences[row].prefix.forced) for row in best}
        open_rows = list(best)
        while open_rows:
            bounds = {row: longest(sentences[row].source, options) for row in open_rows}
            jobs = {row: self._jobs(sentences[row], best[row].ids, fixed[row], bounds[row]) for row in open_rows}
            open_rows = [row for row in open_rows if jobs[row]]
            for row, hypotheses in zip(open_rows, self._continue(sentences, jobs, open_rows, options), strict=True):
                ranked = [(-len(self.missing(sentences[row], h.ids)), h.score, number) for number, h in hypotheses]
                number = max(ranked)[2]
                best[row], fixed[row] = dict(hypotheses)[number], len(jobs[row][number].ids) - 1
            open_rows = [row for row in open_rows if self.missing(sentences[row], best[row].ids)]
        return [hypotheses or [best[row]] for row, hypotheses in enumerate(results)]

    def _jobs(self, sentence: Sentence, ids: Sequence[int], fixed: int, longest: int) -> list[_Job]:
        """Return where the next term could stand in a translation, whose first `fixed` tokens stay."""
        rows = self._log_probs(sentence.source, ids)
        own = rows[range(len(ids) + 1), [*ids, EOS_ID]]
        places = [place for place in range(fixed, len(ids) + 1) if place == len(ids) or self._begins_word[ids[place]]]
        choices = []
        for term in self.missing(sentence, ids):
            spelt = {place: self.tokenizer.encode(term.form(place == 0)) for place in places}
            loss = {place: float(own[place] - rows[place, spelt[place][0]]) for place in places}
            choices.append([(place, spelt[place]) for place in sorted(places, key=loss.__getitem__)[:_PLACES]])
        _, chosen = min((min(places)[0], places) for places in choices)
        jobs = []
        for place, spelt in chosen:
            begun = [*ids[:place], *spelt]
            if len(begun) < longest - 1:
                after = self._log_probs(sentence.source, begun)
                following = int(np.where(self._begins_word, after[-1], _IMPOSSIBLE).argmax())
                cost = float(after[range(len(begun) + 1), [*begun, following]].sum())
                jobs.append(_Job([*begun, following], cost))
        return jobs

    def _continue(
        self, sentences: Sequence[Sentence], jobs: dict[int, list[_Job]], rows: Sequence[int], options: SearchOptions
    ) -> list[list[tuple[int, Hypothesis]]]:
        """Search on from every job of some rows, and return numbered hypotheses of whole translations."""
        sources = [sentences[row].source for row in rows for _ in jobs[row]]
        begun = [[*self.first, *job.ids] for row in rows for job in jobs[row]]
        options = replace(options, n_best=1, scores=True, attention=False)
        found = iter(self.engine.translate(sources, options, begun) if begun else [])
        results = []
        for row in rows:
            hypotheses = []
            for number, job in enumerate(jobs[row]):
                [rest] = next(found)
                ids, log_prob = rest.ids[len(self.first) :], job.log_prob + rest.log_prob
                hypotheses.append((number, Hypothesis.of(ids, log_prob, options.length_penalty)))
            results.append(hypotheses)
        return results

    def _log_probs(self, source: Sequence[int], target: Sequence[int]) -> "np.ndarray":
        return self.engine.next_log_probs(source, [*self.first, *target])[len(self.first) :]
