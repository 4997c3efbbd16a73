"""Translations that have given terms, by search that is forced to write them.

A sentence whose hypotheses lack a term is searched again: the term is forced where the best hypothesis has the word
that is aligned to it by attention, or else at the places where it costs least, and search continues freely behind it.
Terms are placed from left to right, so what has been placed stays, and every term gets its place unless the
translation would become too long. Placeholders, which the model would have to copy, are not needed (docs/lab/terms.md).
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mt.data.tokenizer import EOS_ID
from mt.decoding.alignment import Unit
from mt.decoding.engine import Hypothesis, SearchOptions, Sentences
from mt.decoding.prefix import Prefix, speller_of
from mt.text.casing import starts_sentence
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
def _piece_tables(tokenizer: "TextTokenizer", is_spaced: bool) -> "tuple[np.ndarray, np.ndarray]":
    """Return which pieces begin a word, and which follow the end of one."""
    begins = np.zeros(tokenizer.vocab_size, bool)
    begins[[i for piece, i in speller_of(tokenizer).pieces if not (is_spaced and _CONTINUES.match(piece))]] = True
    ends = begins.copy()
    ends[EOS_ID] = True
    return begins, ends


class Sentence(NamedTuple):
    """A source sentence as tokens, the beginning of its translation, its terms, and its text, where they are."""

    source: Sequence[int]
    prefix: Prefix
    terms: "Sequence[Term]"
    text: str = ""


Aligned = Callable[[Sentence, Hypothesis], Sequence[Unit]]  # words of a translation, with shares of source words


class _Job(NamedTuple):
    """The beginning of a translation up to a term, the token behind it, and their log-probability, without a prefix."""

    ids: list[int]
    following: int
    log_prob: float


@dataclass(eq=False)
class _Unfinished:
    """A sentence whose hypotheses lack terms.

    Attributes:
        best: its translation so far, of which the first `fixed` tokens stay.
        longest: the bound of its tokens.
        given: the log-probability of the sentence's prefix, which that of a completion is without.
        jobs: the ways to place its next term.
    """

    sentence: Sentence
    best: Hypothesis
    fixed: int
    longest: int
    given: float = 0.0
    jobs: list[_Job] = field(default_factory=list)


def _log_prob(costs: "np.ndarray", ids: Sequence[int]) -> float:
    """Return the log-probability of tokens, given that of each token (T, V) behind those before it."""
    return float(costs[range(len(ids)), ids].sum())


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
    aligned: Aligned

    def __post_init__(self) -> None:
        self._begins_word, self._ends_word = _piece_tables(self.tokenizer, self.is_spaced)

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
        results, unfinished = [], dict[int, _Unfinished]()
        for row, (sentence, hypotheses) in enumerate(zip(sentences, found, strict=True)):
            sentence = sentence._replace(terms=self._spellable(sentence.terms))
            bound = longest(sentence.source, options)
            lacking = [len(self.missing(sentence, h.ids)) for h in hypotheses]
            with_terms = [h for h, number in zip(hypotheses, lacking, strict=True) if not number]
            results.append(with_terms or self._copies(sentence, bound, options))
            if not results[row]:
                best = hypotheses[lacking.index(min(lacking))]
                unfinished[row] = _Unfinished(self._forced(sentence, best), best, sentence.prefix.n_complete, bound)
        self._place_terms(list(unfinished.values()), options)
        return [hypotheses or [unfinished[row].best] for row, hypotheses in enumerate(results)]

    def _place_terms(self, unfinished: Sequence[_Unfinished], options: SearchOptions) -> None:
        """Force the terms of sentences into their best hypotheses, one after the other."""
        begun = [(each, each.sentence.prefix.forced) for each in unfinished if each.sentence.prefix.forced]
        costs = self.costs([each.sentence.source for each, _ in begun], [ids for _, ids in begun])
        for (each, ids), own in zip(begun, costs, strict=True):
            each.given = _log_prob(own, ids)
        for _ in range(max((len({term.forms for term in each.sentence.terms}) for each in unfinished), default=0)):
            unfinished = [each for each in unfinished if self.missing(each.sentence, each.best.ids)]
            self._find_jobs(unfinished)
            unfinished = [each for each in unfinished if each.jobs]
            self._continue(unfinished, options)

    def _copies(self, sentence: Sentence, longest: int, options: SearchOptions) -> list[Hypothesis]:
        """Return the sentence as its only translation if it is kept text, digits and punctuation; else none."""
        ids, rest = self.tokenizer.encode(sentence.text), sentence.text
        for term in reversed(sentence.terms):
            rest = rest[: term.start] + rest[term.end :]
        is_kept = _UNIVERSAL.fullmatch(rest) and not any(term.sentence_case for term in sentence.terms)
        fits = sentence.prefix == Prefix() and len(ids) <= longest
        if not (is_kept and fits) or self.missing(sentence, ids):
            return []
        [own] = self.costs([sentence.source], [ids])
        return [Hypothesis.of(ids, _log_prob(own, [*ids, EOS_ID]), options.length_penalty)]

    def _forced(self, sentence: Sentence, hypothesis: Hypothesis) -> Sentence:
        """Return a sentence with the terms that are forced: all that the user requests, others unless many are lost."""
        lost = {term.forms for term in self.missing(sentence, hypothesis.ids) if not term.is_requested}
        requested = [term for term in sentence.terms if term.is_requested]
        return sentence if len(lost) <= _MAX_SPANS else sentence._replace(terms=requested)

    def _spellable(self, terms: "Sequence[Term]") -> "list[Term]":
        """Return the terms that the vocabulary can spell."""
        return [term for term in terms if term.is_in(self.tokenizer.decode(self.tokenizer.encode(term.forms[0])))]

    def _find_jobs(self, unfinished: Sequence[_Unfinished]) -> None:
        """Find how the next term of each sentence could stand in its best hypothesis."""
        costs = self.costs([each.sentence.source for each in unfinished], [each.best.ids for each in unfinished])
        begun = [(each, ids) for each, own in zip(unfinished, costs, strict=True) for ids in self._places(each, own)]
        for each in unfinished:
            each.jobs = []
        costs = self.costs([each.sentence.source for each, _ in begun], [ids for _, ids in begun])
        for (each, ids), own in zip(begun, costs, strict=True):
            following = int(np.where(self._ends_word, own[-1], _IMPOSSIBLE).argmax())
            each.jobs.append(_Job(ids, following, _log_prob(own, [*ids, following]) - each.given))

    def _places(self, unfinished: _Unfinished, costs: "np.ndarray") -> list[list[int]]:
        """Return beginnings of a translation that end with its next term and have room for the token behind it.

        Its fixed tokens stay, and the text of the prefix, whose last word a term may complete.
        """
        sentence, fixed, room = unfinished.sentence, unfinished.fixed, unfinished.longest - 2
        ids, units = unfinished.best.ids, self.aligned(sentence, unfinished.best)
        own = costs[range(len(ids) + 1), [*ids, EOS_ID]]
        ends = {0, len(ids)}
        space = speller_of(self.tokenizer).space
        begins = [self._begins_word[token] and before != space for before, token in pairwise([0, *ids])]
        places = [place for place in range(fixed, len(ids) + 1) if place in ends or begins[place]]
        starts = {place for place in places if self._ends_sentence(ids[:place])}
        prefix, choices, spelling = sentence.prefix, [], functools.cache(self._spelt)
        begun = self._pieces(prefix.ids)
        for term in self.missing(sentence, ids):
            spelt = {place: spelling(term.form(place in starts), place == 0) for place in places}
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

    def _ends_sentence(self, ids: Sequence[int]) -> bool:
        """Return True if what follows begins a sentence, as at the beginning of the translation."""
        end = re.search(r"\Z", f"{self.tokenizer.decode(ids)} ")
        return end is not None and starts_sentence(end)

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

    def _continue(self, unfinished: Sequence[_Unfinished], options: SearchOptions) -> None:
        """Search on from every job, and take the translation with the most terms."""
        going = [
            each.sentence._replace(prefix=Prefix(forced=[*job.ids, job.following]))
            for each in unfinished
            for job in each.jobs
            if job.following != EOS_ID
        ]
        found = iter(self.search(going, replace(options, n_best=1, scores=True)))
        for each in unfinished:
            hypotheses = []
            for job in each.jobs:
                [rest] = next(found) if job.following != EOS_ID else [replace(each.best, ids=job.ids, log_prob=0.0)]
                whole = Hypothesis.of(rest.ids, job.log_prob + rest.log_prob, options.length_penalty)
                hypotheses.append(replace(whole, attention=rest.attention))
            ranked = [(-len(self.missing(each.sentence, h.ids)), h.score) for h in hypotheses]
            number = ranked.index(max(ranked))
            each.best, each.fixed = hypotheses[number], len(each.jobs[number].ids)
