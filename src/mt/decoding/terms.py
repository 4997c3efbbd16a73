"""Search for translations that contain given terms, which it is forced to write.

A sentence whose hypotheses lack a term is searched again: the term is forced where the best hypothesis has the word
that is aligned to it by attention, or else at the place where it is likeliest, and search continues freely behind it.
Terms are placed from left to right, so what has been placed stays, and every term gets its place unless the
translation would become too long. Placeholders, which the model would have to copy, are not needed (docs/lab/terms.md).
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

_PLACES = 3  # compared for each term
_MAX_SPANS = 8  # different lost spans of kept text (mt.data.terms) that are forced; if more are lost, none is
_ALIGNED = 0.3  # least share of a word's attention that lies on a term whose translation it is
_IMPOSSIBLE = -1e9
_MARK = "、"  # behind it no piece begins with a space
_UNIVERSAL = re.compile("[\\s!-@[-`{-~]*")  # ASCII without letters
_CONTINUES = re.compile(f"[{IN_WORD}]")  # begins a piece that continues a word


@functools.lru_cache(maxsize=8)
def _piece_tables(tokenizer: "TextTokenizer", is_spaced: bool) -> "tuple[np.ndarray, np.ndarray]":
    """Return masks (V,) of the pieces that begin a word, and of those that may follow a complete word."""
    begins = np.zeros(tokenizer.vocab_size, bool)
    begins[[i for piece, i in speller_of(tokenizer).pieces if not (is_spaced and _CONTINUES.match(piece))]] = True
    ends = begins.copy()
    ends[EOS_ID] = True
    return begins, ends


class Sentence(NamedTuple):
    """A source sentence: its tokens, the beginning of its translation, its terms, and its text, which has the terms."""

    source: Sequence[int]
    prefix: Prefix
    terms: "Sequence[Term]"
    longest: int  # the maximum number of its translation's tokens
    text: str = ""


class _Placement(NamedTuple):
    """A way to place a term: the translation's tokens up to the end of the term, and the token behind it."""

    ids: list[int]
    next_token: int
    log_prob: float  # of all these tokens, less that of the sentence's prefix
    term_log_prob: float  # of the term and the next token


@dataclass(eq=False)
class _Unfinished:
    """A sentence whose hypotheses lack terms.

    Attributes:
        best: its translation so far.
        n_fixed: how many of its first tokens stay.
        prefix_log_prob: the log-probability of the sentence's prefix, which is not part of a hypothesis's.
    """

    sentence: Sentence
    best: Hypothesis
    n_fixed: int
    prefix_log_prob: float = 0.0


def _log_prob(log_probs: "np.ndarray", ids: Sequence[int]) -> float:
    """Return the log-probability of tokens, given those of every token (T, V) behind the tokens before it."""
    return float(log_probs[range(len(ids)), ids].sum())


@dataclass
class TermSearch:
    """Search for translations that have given terms.

    Args:
        search: returns hypotheses of sentences, which begin with their prefixes.
        next_log_probs: yields log-probabilities as `Engine.next_log_probs` does.
        tokenizer: of the target language.
        is_spaced: whether the target language writes spaces between words.
        aligned: aligns the words of a translation to the source, with shares of source words.
    """

    search: Callable[[Sequence[Sentence], SearchOptions], list[list[Hypothesis]]]
    next_log_probs: Callable[[Sentences, Sentences], "Iterator[np.ndarray]"]
    tokenizer: "TextTokenizer"
    is_spaced: bool
    aligned: Callable[[Sentence, Hypothesis], Sequence[Unit]]

    def __post_init__(self) -> None:
        self._begins_word, self._ends_word = _piece_tables(self.tokenizer, self.is_spaced)

    def missing(self, sentence: Sentence, ids: Sequence[int]) -> "list[Term]":
        """Return the terms that a translation lacks."""
        text = self.tokenizer.decode(ids).strip()
        return [term for term in sentence.terms if not term.is_in(text)]

    def complete(
        self, sentences: Sequence[Sentence], found: Sequence[list[Hypothesis]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence that have all its terms; if none has, one that is forced to.

        A sentence that is nothing but kept text is copied. Where many spans are lost, as in the row of a table, they
        are not forced: each takes a search of its own, which seldom finds the right place.
        """
        results, unfinished = [], dict[int, _Unfinished]()
        for row, (sentence, hypotheses) in enumerate(zip(sentences, found, strict=True)):
            sentence = sentence._replace(terms=self._spellable(sentence.terms))
            lacking = [len(self.missing(sentence, h.ids)) for h in hypotheses]
            with_terms = [h for h, number in zip(hypotheses, lacking, strict=True) if not number]
            results.append(with_terms or self._copies(sentence, options))
            if not results[row]:
                best = hypotheses[lacking.index(min(lacking))]
                unfinished[row] = _Unfinished(self._forced(sentence, best), best, sentence.prefix.n_complete)
        self._place_terms(list(unfinished.values()), options)
        return [hypotheses or [unfinished[row].best] for row, hypotheses in enumerate(results)]

    def _place_terms(self, unfinished: Sequence[_Unfinished], options: SearchOptions) -> None:
        """Force the terms of sentences into their best hypotheses, one term after the other."""
        prefixed = [(each, each.sentence.prefix.forced) for each in unfinished if each.sentence.prefix.forced]
        results = self.next_log_probs([each.sentence.source for each, _ in prefixed], [ids for _, ids in prefixed])
        for (each, ids), log_probs in zip(prefixed, results, strict=True):
            each.prefix_log_prob = _log_prob(log_probs, ids)
        for _ in range(max((len({term.forms for term in each.sentence.terms}) for each in unfinished), default=0)):
            unfinished = [each for each in unfinished if self.missing(each.sentence, each.best.ids)]
            placements = self._placements(unfinished)
            self._continue(placements, options)
            unfinished = list(placements)

    def _copies(self, sentence: Sentence, options: SearchOptions) -> list[Hypothesis]:
        """Return the sentence as its only translation if it is kept text, digits and punctuation; else nothing."""
        ids, rest = self.tokenizer.encode(sentence.text), sentence.text
        for term in reversed(sentence.terms):
            rest = rest[: term.start] + rest[term.end :]
        is_kept = _UNIVERSAL.fullmatch(rest) and not any(term.sentence_case for term in sentence.terms)
        fits = sentence.prefix == Prefix() and len(ids) <= sentence.longest
        if not (is_kept and fits) or self.missing(sentence, ids):
            return []
        [log_probs] = self.next_log_probs([sentence.source], [ids])
        return [Hypothesis.of(ids, _log_prob(log_probs, [*ids, EOS_ID]), options.length_penalty)]

    def _forced(self, sentence: Sentence, hypothesis: Hypothesis) -> Sentence:
        """Return a sentence with the terms to force: those that the user requests, and all unless many are lost.

        Nor are others forced into a translation that ends at the model's own limit, which has no room for them.
        """
        lost = {term.forms for term in self.missing(sentence, hypothesis.ids) if not term.is_requested}
        requested = [term for term in sentence.terms if term.is_requested]
        # The limit that follows from the source's length is more than twice as long, and search goes on behind a term.
        is_full = len(hypothesis.ids) == sentence.longest < 2 * len(sentence.source)
        return sentence._replace(terms=requested) if is_full or len(lost) > _MAX_SPANS else sentence

    def _spellable(self, terms: "Sequence[Term]") -> "list[Term]":
        """Return the terms that the vocabulary can spell."""
        return [term for term in terms if term.is_in(self.tokenizer.decode(self.tokenizer.encode(term.forms[0])))]

    def _placements(self, unfinished: Sequence[_Unfinished]) -> dict[_Unfinished, _Placement]:
        """Return the placement of each sentence's next term, if there is one, in its best hypothesis.

        It is the start whose term and next token are likeliest.
        """
        sources = [each.sentence.source for each in unfinished]
        results = self.next_log_probs(sources, [each.best.ids for each in unfinished])
        starts = [
            (each, *start) for each, p in zip(unfinished, results, strict=True) for start in self._starts(each, p)
        ]
        placements = dict[_Unfinished, _Placement]()
        results = self.next_log_probs([each.sentence.source for each, *_ in starts], [ids for _, ids, _ in starts])
        for (each, ids, before), log_probs in zip(starts, results, strict=True):
            next_token = int(np.where(self._ends_word, log_probs[-1], _IMPOSSIBLE).argmax())
            log_prob = _log_prob(log_probs, [*ids, next_token])
            placement = _Placement(ids, next_token, log_prob - each.prefix_log_prob, log_prob - before)
            placements[each] = max(placements.get(each, placement), placement, key=lambda p: p.term_log_prob)
        return placements

    def _starts(self, unfinished: _Unfinished, log_probs: "np.ndarray") -> list[tuple[list[int], float]]:
        """Return starts of a translation that end with its next term and leave room for the token behind it.

        With each is the log-probability of the tokens before the term.

        Its fixed tokens stay, and the text of the prefix, whose last word a term may complete. The log-probabilities
        (T + 1, V) are those of the next token behind 0 to T tokens of its best hypothesis.
        """
        sentence, n_fixed, room = unfinished.sentence, unfinished.n_fixed, unfinished.sentence.longest - 2
        ids, units = unfinished.best.ids, self.aligned(sentence, unfinished.best)
        ends = {0, len(ids)}
        space = speller_of(self.tokenizer).space
        begins = [self._begins_word[token] and before != space for before, token in pairwise([0, *ids])]
        places = [place for place in range(n_fixed, len(ids) + 1) if place in ends or begins[place]]
        sentence_starts = {place for place in places if self._ends_sentence(ids[:place])}
        prefix, choices, spelling = sentence.prefix, [], functools.cache(self._spelt)
        prefix_text, next_ids = self._pieces(prefix.ids), [*ids, EOS_ID]
        for term in self.missing(sentence, ids):
            spelt = {place: spelling(term.form(place in sentence_starts), place == 0) for place in places}
            fitting = [p for p in places if p + len(spelt[p]) <= room]
            fitting = [p for p in fitting if self._pieces([*ids[:p], *spelt[p]]).startswith(prefix_text)]
            loss = {p: float(log_probs[p, next_ids[p]] - log_probs[p, spelt[p][0]]) for p in fitting}
            # Kept text often has no word in its place, so it is not placed by alignment.
            aligned_place = self._place_of(term, units, places, ids) if term.sentence_case else -1
            chosen = [aligned_place] if aligned_place in loss else sorted(loss, key=loss.__getitem__)[:_PLACES]
            if n_fixed == prefix.n_complete < len(prefix.ids) and n_fixed in loss and not prefix.text.endswith(" "):
                chosen = list({*chosen, n_fixed})  # it completes the prefix's last word
            if chosen:
                choices.append((aligned_place not in loss, min(chosen), [(place, spelt[place]) for place in chosen]))
        *_, next_term = min(choices, default=(False, 0, []))  # those aligned to a word, left to right, then the others
        return [([*ids[:place], *spelt], _log_prob(log_probs, ids[:place])) for place, spelt in next_term]

    def _ends_sentence(self, ids: Sequence[int]) -> bool:
        """Return True if the next word begins a sentence, as at the beginning of the translation."""
        end = re.search(r"\Z", f"{self.tokenizer.decode(ids)} ")
        return end is not None and starts_sentence(end)

    def _pieces(self, ids: Sequence[int]) -> str:
        return "".join(self.tokenizer.tokens(ids))

    def _spelt(self, form: str, begins: bool) -> list[int]:
        """Return a term as tokens, after a space if the language has spaces or the term `begins` the translation."""
        if self.is_spaced or begins:
            return self.tokenizer.encode(form)
        mark, behind = self.tokenizer.encode(_MARK), self.tokenizer.encode(_MARK + form)
        return behind[len(mark) :] if behind[: len(mark)] == mark else self.tokenizer.encode(form)

    def _place_of(self, term: "Term", units: Sequence[Unit], places: Sequence[int], ids: Sequence[int]) -> int:
        """Return the place before the word of a translation that attends to a term most; -1 if none does enough."""
        shares = {
            unit.start: sum(share for word, share in unit.shares if term.start <= word < term.end) for unit in units
        }
        start = max(shares, key=shares.__getitem__, default=-1)
        if shares.get(start, 0.0) < _ALIGNED:
            return -1
        return max((place for place in places if len(self.tokenizer.decode(ids[:place])) <= start), default=-1)

    def _continue(self, placements: Mapping[_Unfinished, _Placement], options: SearchOptions) -> None:
        """Continue the search from every placement."""
        continued = [
            each.sentence._replace(prefix=Prefix(forced=[*placement.ids, placement.next_token]))
            for each, placement in placements.items()
            if placement.next_token != EOS_ID
        ]
        found = iter(self.search(continued, replace(options, n_best=1, scores=True)))
        for each, placement in placements.items():
            ended = replace(each.best, ids=placement.ids, log_prob=0.0)
            [rest] = next(found) if placement.next_token != EOS_ID else [ended]
            hypothesis = Hypothesis.of(rest.ids, placement.log_prob + rest.log_prob, options.length_penalty)
            each.best, each.n_fixed = replace(hypothesis, attention=rest.attention), len(placement.ids)
