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
    """The beginning of a translation up to a term and the token behind it.

    Attributes:
        ids: its tokens, without EOS.
        log_prob: their log-probability, that of an EOS included.
        fixed: how many of them stay in later searches.
        ended: whether the token behind the term was EOS.
    """

    ids: list[int]
    log_prob: float
    fixed: int
    ended: bool


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
        begins = [i not in hidden and not (self.is_spaced and piece[:1].isalnum()) for i, piece in enumerate(pieces)]
        self._begins_word, self._ends_word = np.array(begins), np.array(begins)
        self._ends_word[EOS_ID] = True

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
        sentences = [sentence._replace(terms=self._spellable(sentence.terms)) for sentence in sentences]
        results = [
            [h for h in found[row] if not self.missing(sentence, h.ids)] for row, sentence in enumerate(sentences)
        ]
        best = {row: found[row][0] for row, hypotheses in enumerate(results) if not hypotheses}
        fixed = {row: len(sentences[row].prefix.forced) for row in best}
        open_rows = list(best)
        for _ in range(max((len(sentence.terms) for sentence in sentences), default=0)):
            bounds = {row: longest(sentences[row].source, options) for row in open_rows}
            jobs = {row: self._jobs(sentences[row], best[row].ids, fixed[row], bounds[row]) for row in open_rows}
            open_rows = [row for row in open_rows if jobs[row]]
            for row, hypotheses in zip(open_rows, self._continue(sentences, jobs, open_rows, options), strict=True):
                ranked = [(-len(self.missing(sentences[row], h.ids)), h.score) for h in hypotheses]
                number = ranked.index(max(ranked))
                best[row], fixed[row] = hypotheses[number], jobs[row][number].fixed
            open_rows = [row for row in open_rows if self.missing(sentences[row], best[row].ids)]
        return [hypotheses or [best[row]] for row, hypotheses in enumerate(results)]

    def _spellable(self, terms: "Sequence[Term]") -> "list[Term]":
        """Return the terms that the vocabulary can spell."""
        return [term for term in terms if term.is_in(self.tokenizer.decode(self.tokenizer.encode(term.forms[0])))]

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
                following = int(np.where(self._ends_word, after[-1], _IMPOSSIBLE).argmax())
                cost = float(after[range(len(begun) + 1), [*begun, following]].sum())
                ended = following == EOS_ID
                jobs.append(_Job(begun if ended else [*begun, following], cost, len(begun), ended))
        return jobs

    def _continue(
        self, sentences: Sequence[Sentence], jobs: dict[int, list[_Job]], rows: Sequence[int], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Search on from every job of some rows, and return hypotheses of whole translations."""
        going = [(sentences[row].source, [*self.first, *job.ids]) for row in rows for job in jobs[row] if not job.ended]
        options = replace(options, n_best=1, scores=True, attention=False)
        sources, begun = [source for source, _ in going], [ids for _, ids in going]
        found = iter(self.engine.translate(sources, options, begun) if going else [])
        results = []
        for row in rows:
            hypotheses = []
            for job in jobs[row]:
                ids, log_prob = job.ids, job.log_prob
                if not job.ended:
                    [rest] = next(found)
                    ids, log_prob = rest.ids[len(self.first) :], log_prob + rest.log_prob
                hypotheses.append(Hypothesis.of(ids, log_prob, options.length_penalty))
            results.append(hypotheses)
        return results

    def _log_probs(self, source: Sequence[int], target: Sequence[int]) -> "np.ndarray":
        return self.engine.next_log_probs(source, [*self.first, *target])[len(self.first) :]
