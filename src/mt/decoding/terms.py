"""Translations that have given terms, by search that is forced to write them.

A sentence whose hypotheses lack a term is searched again: the term is forced where the best hypothesis has the word
that is aligned to it by attention, or else at the places where it costs least, and search continues freely behind it.
Terms are placed from left to right, so what has been placed stays, and every term gets its place unless the
translation would become too long. Placeholders, which the model would have to copy, are not needed (docs/lab/terms.md).
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mt.data.tokenizer import EOS_ID, SPACE, SPECIALS
from mt.decoding.alignment import Unit
from mt.decoding.engine import Hypothesis, SearchOptions, Sentences
from mt.decoding.prefix import Prefix
from mt.text.words import IN_WORD

if TYPE_CHECKING:
    from mt.data.terms import Term
    from mt.data.tokenizer_kinds import TextTokenizer

_PLACES = 3  # that are tried for a term
_MAX_SPANS = 8  # different pieces of `SPANS` that are forced; if more are lost, none is
_ALIGNED = 0.3  # share of the attention to a term that makes a word its translation
_IMPOSSIBLE = -1e9
_MARK = "、"  # behind which no piece begins with a space
_UNIVERSAL = re.compile("[\\s!-@[-`{-~]*")  # ASCII without letters
_CONTINUES = re.compile(f"[{IN_WORD}]")  # a piece that continues a word


@functools.lru_cache(maxsize=8)
def _piece_tables(tokenizer: "TextTokenizer", is_spaced: bool) -> "tuple[np.ndarray, np.ndarray, np.ndarray]":
    """Return which pieces begin a word, which follow the end of one, and which are a space."""
    pieces = tokenizer.tokens(range(tokenizer.vocab_size))
    hidden = {*range(len(SPECIALS)), *tokenizer.byte_ids, *tokenizer.tags.values()}
    begins = np.array([i not in hidden and not (is_spaced and _CONTINUES.match(p)) for i, p in enumerate(pieces)])
    ends = begins.copy()
    ends[EOS_ID] = True
    return begins, ends, np.array([piece == SPACE for piece in pieces])


class Sentence(NamedTuple):
    """A source sentence as tokens, the beginning of its translation, its terms, and its text, where they are."""

    source: Sequence[int]
    prefix: Prefix
    terms: "Sequence[Term]"
    text: str = ""


Aligned = Callable[[Sentence, Hypothesis], Sequence[Unit]]  # words of a translation, with shares of source words


class _Job(NamedTuple):
    """The beginning of a translation up to a term and the token behind it.

    Attributes:
        ids: its tokens, without EOS.
        log_prob: their log-probability, that of an EOS included, but not that of a prefix.
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
        search: returns hypotheses of sentences, which begin with their prefixes.
        costs: yields log-probabilities as `Engine.next_log_probs` does.
        tokenizer: of the target language.
        is_spaced: whether the target language writes spaces between words.
        aligned: aligns the words of a translation to the source.
    """

    search: Callable[[Sequence[Sentence], SearchOptions], list[list[Hypothesis]]]
    costs: Callable[[Sentences, Sentences], "Iterator[np.ndarray]"]
    tokenizer: "TextTokenizer"
    is_spaced: bool
    aligned: Aligned = lambda *_: ()

    def __post_init__(self) -> None:
        self._begins_word, self._ends_word, self._is_space = _piece_tables(self.tokenizer, self.is_spaced)

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

        A sentence of kept text alone is copied. Many spans that are lost, as in the row of a table, are not forced:
        that takes a search for each, which seldom finds its place.

        Args:
            sentences: with terms.
            found: their hypotheses, best first.
            options: of the search.
            longest: returns the bound of a translation's tokens.
        """
        sentences = [sentence._replace(terms=self._spellable(sentence.terms)) for sentence in sentences]
        results = [
            [h for h in found[row] if not self.missing(sentence, h.ids)] or self._copies(sentence, options, longest)
            for row, sentence in enumerate(sentences)
        ]
        best = {row: self._fullest(sentences[row], found[row]) for row, each in enumerate(results) if not each}
        for row, hypothesis in best.items():
            sentences[row] = self._forced(sentences[row], hypothesis)
        fixed = {row: sentences[row].prefix.n_complete for row in best}
        given = self._given({row: sentences[row] for row in best})
        open_rows = [row for row in best if self.missing(sentences[row], best[row].ids)]
        for _ in range(max((len({term.forms for term in sentence.terms}) for sentence in sentences), default=0)):
            jobs = self._jobs({row: sentences[row] for row in open_rows}, best, fixed, given, options, longest)
            open_rows = [row for row in open_rows if jobs[row]]
            for row, hypotheses in zip(open_rows, self._continue(sentences, jobs, open_rows, options), strict=True):
                ranked = [(-len(self.missing(sentences[row], h.ids)), h.score) for h in hypotheses]
                number = ranked.index(max(ranked))
                best[row], fixed[row] = hypotheses[number], jobs[row][number].fixed
            open_rows = [row for row in open_rows if self.missing(sentences[row], best[row].ids)]
        return [hypotheses or [best[row]] for row, hypotheses in enumerate(results)]

    def _fullest(self, sentence: Sentence, hypotheses: Sequence[Hypothesis]) -> Hypothesis:
        """Return the first of the hypotheses that lack the fewest terms."""
        return min(hypotheses, key=lambda hypothesis: len(self.missing(sentence, hypothesis.ids)))

    def _copies(
        self, sentence: Sentence, options: SearchOptions, longest: Callable[[Sequence[int], SearchOptions], int]
    ) -> list[Hypothesis]:
        """Return the sentence as its only translation if it is kept text, digits and punctuation; else none."""
        ids, rest = self.tokenizer.encode(sentence.text), sentence.text
        for term in reversed(sentence.terms):
            rest = rest[: term.start] + rest[term.end :]
        is_kept = _UNIVERSAL.fullmatch(rest) and not any(term.sentence_case for term in sentence.terms)
        fits = sentence.prefix == Prefix() and len(ids) <= longest(sentence.source, options)
        if not (is_kept and fits) or self.missing(sentence, ids):
            return []
        [own] = self.costs([sentence.source], [ids])
        return [Hypothesis.of(ids, float(own[range(len(ids) + 1), [*ids, EOS_ID]].sum()), options.length_penalty)]

    def _forced(self, sentence: Sentence, hypothesis: Hypothesis) -> Sentence:
        """Return a sentence with the terms that are forced: all that the user requests, others unless many are lost."""
        lost = {term.forms for term in self.missing(sentence, hypothesis.ids) if not term.is_requested}
        requested = [term for term in sentence.terms if term.is_requested]
        return sentence if len(lost) <= _MAX_SPANS else sentence._replace(terms=requested)

    def _spellable(self, terms: "Sequence[Term]") -> "list[Term]":
        """Return the terms that the vocabulary can spell."""
        return [term for term in terms if term.is_in(self.tokenizer.decode(self.tokenizer.encode(term.forms[0])))]

    def _jobs(
        self,
        sentences: dict[int, Sentence],
        best: dict[int, Hypothesis],
        fixed: dict[int, int],
        given: dict[int, float],
        options: SearchOptions,
        longest: Callable[[Sequence[int], SearchOptions], int],
    ) -> dict[int, list[_Job]]:
        """Return how the next term of each sentence could stand in its best hypothesis."""
        begun = []
        costs = self.costs([sentence.source for sentence in sentences.values()], [best[row].ids for row in sentences])
        for (row, sentence), own in zip(sentences.items(), costs, strict=True):
            room = longest(sentence.source, options) - 2  # for the token behind the term
            begun += [(row, ids) for ids in self._places(sentence, best[row], fixed[row], room, own)]
        jobs: dict[int, list[_Job]] = {row: [] for row in sentences}
        costs = self.costs([sentences[row].source for row, _ in begun], [ids for _, ids in begun])
        for (row, ids), own in zip(begun, costs, strict=True):
            following = int(np.where(self._ends_word, own[-1], _IMPOSSIBLE).argmax())
            cost = float(own[range(len(ids) + 1), [*ids, following]].sum()) - given.get(row, 0.0)
            ended = following == EOS_ID
            jobs[row].append(_Job(ids if ended else [*ids, following], cost, len(ids), ended))
        return jobs

    def _places(
        self, sentence: Sentence, hypothesis: Hypothesis, fixed: int, room: int, costs: "np.ndarray"
    ) -> list[list[int]]:
        """Return beginnings of a translation, of at most `room` tokens, that end with its next term.

        Its first `fixed` tokens stay, and the text of the prefix, whose last word a term may complete.
        """
        ids, units = hypothesis.ids, self.aligned(sentence, hypothesis)
        own = costs[range(len(ids) + 1), [*ids, EOS_ID]]
        ends = {0, len(ids)}
        begins = [self._begins_word[token] and not self._is_space[before] for before, token in pairwise([0, *ids])]
        places = [place for place in range(fixed, len(ids) + 1) if place in ends or begins[place]]
        prefix, choices = sentence.prefix, []
        begun = self._pieces(prefix.ids)
        for term in self.missing(sentence, ids):
            first, inner = self._spelt(term.form(True), True), self._spelt(term.form(False), False)
            spelt = {place: inner if place else first for place in places}
            fitting = [p for p in places if p + len(spelt[p]) <= room]
            fitting = [p for p in fitting if self._pieces([*ids[:p], *spelt[p]]).startswith(begun)]
            loss = {p: float(own[p] - costs[p, spelt[p][0]]) for p in fitting}
            # Text that stays as it is often has no word in its place.
            instead = self._place_of(term, units, places, ids) if term.sentence_case else -1
            chosen = [instead] if instead in loss else sorted(loss, key=loss.__getitem__)[:_PLACES]
            if fixed == prefix.n_complete < len(prefix.ids) and fixed in loss and not prefix.text.endswith(" "):
                chosen = list({*chosen, fixed})  # it completes the prefix's last word
            if chosen:
                choices.append((instead not in loss, min(chosen), [(place, spelt[place]) for place in chosen]))
        *_, next_term = min(choices, default=(False, 0, []))  # those aligned to a word, left to right, then the others
        return [[*ids[:place], *spelt] for place, spelt in next_term]

    def _pieces(self, ids: Sequence[int]) -> str:
        return "".join(self.tokenizer.tokens(ids))

    def _spelt(self, form: str, begins: bool) -> list[int]:
        """Return a term as tokens: with a space before it only in a language with spaces, or at the beginning."""
        if self.is_spaced or begins:
            return self.tokenizer.encode(form)
        mark, behind = self.tokenizer.encode(_MARK), self.tokenizer.encode(_MARK + form)
        return behind[len(mark) :] if behind[: len(mark)] == mark else self.tokenizer.encode(form)

    def _place_of(self, term: "Term", units: Sequence[Unit], places: Sequence[int], ids: Sequence[int]) -> int:
        """Return the place before the word of a translation that is aligned most to a term; -1 if none is."""
        shares = {
            unit.start: sum(share for word, share in unit.shares if term.start <= word < term.end) for unit in units
        }
        start = max(shares, key=shares.__getitem__, default=-1)
        if shares.get(start, 0.0) < _ALIGNED:
            return -1
        return max((place for place in places if len(self.tokenizer.decode(ids[:place])) <= start), default=-1)

    def _continue(
        self, sentences: Sequence[Sentence], jobs: dict[int, list[_Job]], rows: Sequence[int], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Search on from every job of some rows, and return hypotheses of whole translations."""
        going = [
            sentences[row]._replace(prefix=Prefix(forced=job.ids)) for row in rows for job in jobs[row] if not job.ended
        ]
        found = iter(self.search(going, replace(options, n_best=1, scores=True)))
        results = []
        for row in rows:
            hypotheses = []
            for job in jobs[row]:
                [rest] = [Hypothesis(job.ids, 0.0, 0.0)] if job.ended else next(found)
                whole = Hypothesis.of(rest.ids, job.log_prob + rest.log_prob, options.length_penalty)
                hypotheses.append(replace(whole, attention=rest.attention))
            results.append(hypotheses)
        return results

    def _given(self, sentences: dict[int, Sentence]) -> dict[int, float]:
        """Return the log-probability of the prefix of each sentence that has one, which a completion's is without."""
        begun = {row: list(sentence.prefix.forced) for row, sentence in sentences.items() if sentence.prefix.forced}
        costs = self.costs([sentences[row].source for row in begun], list(begun.values()))
        return {
            row: float(own[range(len(ids)), ids].sum()) for (row, ids), own in zip(begun.items(), costs, strict=True)
        }
