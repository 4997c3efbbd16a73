"""Search requests, which are checked and turned into a model's search options, and the `Translation` they give."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypedDict

from mt.decoding.candidates import Candidate
from mt.decoding.engine import Sampling, SearchOptions
from mt.errors import InputError, contradict

if TYPE_CHECKING:
    from mt.decoding.attention_weights import Attention

UTILITIES = ("chrf", "bleu")
_SAMPLING = ("temperature", "top_k", "top_p", "seed")
_BOUNDS: dict[str, tuple[float, float]] = {
    "beam_size": (1, 1000),
    "n_best": (1, 100_000),
    "mbr": (2, 1000),
    "length_penalty": (-10, 10),
    "no_repeat_ngram_size": (0, 1000),
    "temperature": (0.001, 1000),
    "top_k": (1, math.inf),
    "top_p": (1e-9, 1),
    "seed": (0, math.inf),
}
_REAL = ("length_penalty", "temperature", "top_p")  # the others are whole numbers


class Search(TypedDict, total=False):
    """Keyword arguments of search; what is left out, or None, is the model's own setting.

    Attributes:
        beam_size: hypotheses kept per sentence; 1 is greedy search.
        length_penalty: the exponent of a hypothesis's length in its score.
        no_repeat_ngram_size: n-grams of this many tokens occur at most once in a translation; 0: no such limit.
        sample: draw translations instead of searching for the most likely.
        temperature: with `sample`: below 1 favours likely tokens.
        top_k: with `sample`: draw from this many of the most likely tokens.
        top_p: with `sample`: draw from the most likely tokens, up to this total probability.
        seed: with `sample`: the random seed.
        mbr: minimum Bayes risk decoding: choose among this many candidates.
        utility: with `mbr`: its metric, chrf or bleu.
    """

    beam_size: int | None
    length_penalty: float | None
    no_repeat_ngram_size: int | None
    sample: bool
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    mbr: int | None
    utility: str | None


class Arguments(Search, total=False):
    """Keyword arguments of `Translator.translate`."""

    to: str | None
    target_lang: str | None
    source_lang: str | None
    attention: bool
    prefix: str | Iterable[str]


@dataclass(frozen=True)
class SearchRequest:
    """A checked search; None leaves a value to the model.

    Attributes:
        n_best: number of translations to find; minimum Bayes risk decoding chooses among them.
        utility: the metric of minimum Bayes risk decoding.
        name: returns an argument's name for messages; the command line's options have other names.
    """

    beam_size: int | None = None
    length_penalty: float | None = None
    n_best: int = 1
    sampling: Sampling | None = None
    utility: str | None = None
    name: Callable[[str], str] = str
    no_repeat_ngram_size: int | None = None

    @classmethod
    def of(cls, search: Mapping[str, Any], n_best: int = 1, name: Callable[[str], str] = str) -> "SearchRequest":
        """Check the keyword arguments of a search.

        Raises:
            InputError: one is unknown, they contradict each other, or a value is out of bounds.
        """
        if unknown := sorted(set(search) - set(Search.__annotations__)):
            raise InputError(
                f"{unknown[0]} is no argument of a search", f"they are {', '.join(Search.__annotations__)}"
            )
        given = {key: value for key, value in search.items() if value is not None}
        for key, value in {**given, "n_best": n_best}.items():
            _check(key, value, name)
        beam, mbr, sample = given.get("beam_size"), given.get("mbr"), given.get("sample", False)
        contradict(beam is not None and sample, name("beam_size"), name("sample"))
        if "utility" in given and mbr is None:
            raise InputError(f"{name('utility')} belongs to {name('mbr')}", f"add {name('mbr')}, or leave it out")
        if mbr is not None and n_best > mbr:
            message = f"{name('n_best')} {n_best} is more than the {mbr} candidates of {name('mbr')}"
            raise InputError(message, f"raise {name('mbr')}")
        options = {key: given[key] for key in _SAMPLING if key in given}
        if options and not sample:
            raise InputError(f"{name(next(iter(options)))} belongs to {name('sample')}", "add it, or leave this out")
        utility = None if mbr is None else given.get("utility", UTILITIES[0])
        sampling = Sampling(**options) if sample else None
        no_repeat = given.get("no_repeat_ngram_size")
        return cls(beam, given.get("length_penalty"), mbr or n_best, sampling, utility, name, no_repeat)

    @property
    def is_default(self) -> bool:
        """True where everything is left to the model."""
        return replace(self, name=str) == SearchRequest()

    def options(self, defaults: SearchOptions, scores: bool = True) -> SearchOptions:
        """Return a model's search options, replaced by the requested ones where there are any.

        Raises:
            InputError: the beam cannot hold `n_best` translations.
        """
        beam = self.beam_size or defaults.beam_size
        if self.sampling is None and self.n_best > beam:
            if self.beam_size is not None or self.utility is None:
                argument = self.name("mbr" if self.utility else "n_best")
                message = f"{argument} {self.n_best} is more than the beam of {beam} can hold"
                raise InputError(message, f"give {self.name('beam_size')} {self.n_best} or more")
            beam = self.n_best
        requested = {"length_penalty": self.length_penalty, "no_repeat_ngram_size": self.no_repeat_ngram_size}
        changes: dict[str, Any] = {name: value for name, value in requested.items() if value is not None}
        changes |= {"beam_size": beam, "n_best": self.n_best, "sampling": self.sampling}
        return replace(defaults, **changes, scores=scores or self.utility is not None)

    def refuse_utility(self) -> None:
        """Refuse minimum Bayes risk decoding, for callers that would not rerank its candidates."""
        if self.utility is not None:
            raise InputError(f"{self.name('mbr')} has no effect here", "leave it out")

    def utility_in(self, target_lang: str) -> str | None:
        """Return the variant of the utility for a language, a key of `mt.metrics.pairwise.UTILITIES`."""
        if self.utility is None:
            return None
        from mt.metrics.pairwise import utility_for

        return utility_for(self.utility, target_lang)


def _check(key: str, value: Any, name: Callable[[str], str]) -> None:
    """Check the type and the bounds of one argument."""
    if key == "sample" and value not in (True, False):
        raise InputError(f"{name(key)}: {value!r:.50} is neither True nor False")
    if key == "utility" and value not in UTILITIES:
        raise InputError(f"{name(key)}: {value!r:.50} is not one of {', '.join(UTILITIES)}")
    if key not in _BOUNDS:
        return
    low, high = _BOUNDS[key]
    kind: Any = Real if key in _REAL else Integral  # numpy's numbers, too
    if isinstance(value, bool) or not isinstance(value, kind):
        raise InputError(f"{name(key)}: {value!r:.50} is not a {'number' if key in _REAL else 'whole number'}")
    if key == "top_p" and not 0 < value <= 1:
        raise InputError(f"{name(key)} {value} is not a probability above 0")
    if not low <= value <= high:  # also refuses NaN
        bounds = f"below {low:g}" if high == math.inf else f"not between {low:g} and {high:g}"
        raise InputError(f"{name(key)} {value} is {bounds}")


@dataclass(frozen=True)
class Translation:
    """The translation of one line, with what the search knows about it.

    Attributes:
        source: the line.
        n_best: the translations found, best first, each with `text`, `score` (by which it was ranked) and `log_prob`
            (natural logarithm, the end of the sentence counted).
        source_tokens, tokens: the subwords that the model read and wrote.
        attention: with `attention=True`, the weights, one item per part of a long line.
    """

    source: str
    n_best: tuple[Candidate, ...]
    source_tokens: tuple[str, ...]
    tokens: tuple[str, ...]
    attention: "tuple[Attention, ...] | None" = None

    @property
    def text(self) -> str:
        """The best translation."""
        return self.n_best[0].text

    @property
    def completion(self) -> str:
        """The part of the best translation that follows its prefix."""
        return self.n_best[0].completion

    @property
    def score(self) -> float:
        """The score of the best translation: its log-probability, normalised by length."""
        return self.n_best[0].score

    @property
    def alignment(self) -> list[tuple[int, int]] | None:
        """Pairs (source word, target word), counted from 0, read from the attention; None without it."""
        if self.attention is None:
            return None
        from mt.decoding.attention_weights import word_pairs

        return word_pairs(self.attention)
