"""Strings in, strings out: tokenizer, engine, and what lies between."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mt.console import log
from mt.data.tokenizer import TokenizerPair, normalized
from mt.decoding.engine import Engine, Hypothesis, SearchOptions
from mt.decoding.long_input import split_long
from mt.decoding.shared_engine import SharedEngine
from mt.languages import base_language
from mt.world import World

# Languages written without spaces: the parts of a long text are joined without one.
_UNSPACED = {"zh", "ja", "th", "lo", "km", "my"}


@dataclass(frozen=True)
class Candidate:
    """One translation of a line, with the score it was ranked by and its log-probability."""

    text: str
    score: float
    log_prob: float


class Translator:
    """Translates lines of text.

    Args:
        engine: does the search.
        tokenizers: of both languages.
        max_source_tokens: what the model was trained to take, specials counted; longer lines are translated in parts.
        target_lang: the language of the output.
    """

    def __init__(self, engine: Engine, tokenizers: TokenizerPair, max_source_tokens: int, target_lang: str) -> None:
        self._engine = engine
        self._tokenizers = tokenizers
        self._limit = max_source_tokens - 2
        self._target_lang = target_lang
        self._joint = "" if base_language(target_lang) in _UNSPACED else " "

    def shared(self, world: World) -> "Translator":
        """The same translator, whose work the processes share."""
        engine = SharedEngine(self._engine, world)
        return Translator(engine, self._tokenizers, self._limit + 2, self._target_lang)

    def translate(self, lines: Sequence[str], options: SearchOptions, first_line: int = 1) -> list[list[Candidate]]:
        """The n best translations of each line, best first; an empty line gives one empty translation.

        Args:
            lines: what to translate.
            options: how to search.
            first_line: the number of the first line, for warnings.
        """
        parts = [self._parts(line, number) for number, line in enumerate(lines, first_line)]
        ids = self._tokenizers.source.encode_batch([part for line in parts for part in line])
        hypotheses = iter(self._engine.translate(ids, options))
        return [self._joined([next(hypotheses) for _ in line]) for line in parts]

    def best(self, lines: Sequence[str], options: SearchOptions) -> list[str]:
        """The best translation of each line."""
        return [candidates[0].text for candidates in self.translate(lines, replace(options, scores=False))]

    def _parts(self, line: str, number: int) -> list[str]:
        text = line.strip()
        if not text:
            return []
        # A character is at most four bytes, so a short line needs no counting.
        if 4 * len(normalized(text)) + 1 <= self._limit:
            return [text]
        parts = split_long(text, lambda part: len(self._tokenizers.source.encode(part)), self._limit)
        if len(parts) > 1:
            log.warning("line %d is longer than the model takes; translated in %d parts", number, len(parts))
        return parts

    def _joined(self, parts: list[list[Hypothesis]]) -> list[Candidate]:
        """Joins the parts of a line: best with best, second with second."""
        if not parts:
            return [Candidate("", 0.0, 0.0)]
        candidates = []
        for rank in range(max(map(len, parts))):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in parts]
            texts = self._tokenizers.target.decode_batch([h.ids for h in chosen])
            joined = self._joint.join(text.strip() for text in texts)
            # A model can spell a line break in bytes; one line in must stay one line out.
            one_line = joined.replace("\r", " ").replace("\n", " ")
            candidates.append(Candidate(one_line, sum(h.score for h in chosen), sum(h.log_prob for h in chosen)))
        return candidates
