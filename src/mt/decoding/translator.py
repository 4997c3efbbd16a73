"""Translation of lines of text: splitting, tokenization, search with prefixes and terms, and joining."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from mt.console import log
from mt.data.inline_terms import encode_with_terms
from mt.data.sentence_format import NO_TAGS, SentenceFormat, Tags
from mt.data.terms import Terms
from mt.data.tokenizer import normalized
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.alignment import Unit, align_units
from mt.decoding.candidates import Candidate, Part
from mt.decoding.engine import Engine, Hypothesis, SearchOptions, Sentences
from mt.decoding.long_input import parts_of
from mt.decoding.prefix import Prefix, speller_of, without_broken_bytes
from mt.decoding.runaway import search_without_loops
from mt.decoding.settings import TranslationSettings
from mt.decoding.terms import Sentence, TermSearch
from mt.errors import InputError
from mt.text.languages import chosen_language, is_spaced
from mt.text.lines import with_plain_spaces, without_line_breaks
from mt.text.preprocessing import NO_PREPROCESSING, Preprocessed, Preprocessing
from mt.text.words import word_starts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mt.data.eval_texts import EvalText
    from mt.data.glossary import Glossary

_TERM_BLOCK = 512  # sentences with terms whose hypotheses and attention are in memory at once
LineNumbers = int | Sequence[int] | None  # the number of the first line, or of each line; None: no warnings


@dataclass(eq=False)
class Translator:
    """Translates lines of text."""

    engine: Engine
    tokenizers: TokenizerPair
    settings: TranslationSettings
    preprocessing: Preprocessing = NO_PREPROCESSING  # of case and spelling, before translation
    source_lang: str = ""  # of the text; empty where the model has one or it is unknown
    chosen: str | None = None  # one of the target languages; None where it is still to be chosen with `to`
    glossary: "Glossary | None" = None  # terms that translations must have
    inline_terms: bool = True  # write terms into sources if the settings say so; never where attention is returned
    format: SentenceFormat = field(init=False)  # has the source language, if it is known
    tags: Tags = field(init=False)  # ask for the target language; empty where the model knows one language
    separator: str = field(init=False)  # joins sentences of the output

    def __post_init__(self) -> None:
        languages = self.settings.target_langs
        self.chosen = self.chosen or (languages[0] if len(languages) == 1 else None)
        self.format = self.settings.sentence_format.of_source(self.source_lang)
        undecided = self.chosen is None or (self.format.names_source and not self.format.source_lang)
        self.tags = NO_TAGS if undecided else self.format.tags(self.tokenizers, self.chosen or "", len(languages) > 1)
        self._target_tags = self.tags.target([])
        if self.format.source_lang and self.chosen:
            _ = self._terms  # reports an unusable glossary now; without a source language, only once terms are needed
        self._limit = self.settings.max_source_tokens - 2 - len(self.tags.source([]))
        self.separator = " " if self.chosen is None or is_spaced(self.chosen) else ""

    @cached_property
    def _terms(self) -> Terms:
        languages = self.format.source_lang, self.chosen or ""
        return self.glossary.terms(*languages) if self.glossary else Terms({}, (), languages)

    def to(self, target_lang: str | None, source_lang: str | None = None) -> "Translator":
        """Return the same translator for one of its directions; None is the only language, or the one chosen before.

        A source language need not be chosen unless a tag names it.

        Raises:
            InputError: the model does not have that language, or has several and none is named, or the direction would
                translate a language into itself.
        """
        source, languages = source_lang or self.format.source_lang, self.settings.source_langs
        if source_lang and languages:
            source = chosen_language(languages, source_lang, "source")
        elif not source and self.format.names_source:
            chosen_language(languages, None, "source")  # raises
        if self.chosen is not None and target_lang in (None, self.chosen) and source == self.format.source_lang:
            return self
        target = chosen_language(self.settings.target_langs, target_lang or self.chosen)
        into = replace(self, chosen=target, source_lang=source)
        if into.is_zero_shot and source == target:
            raise InputError(f"the text is in {source} already, and so would be the translation", "choose another --to")
        return into

    def for_text(self, text: "EvalText") -> "Translator":
        """Return the same translator for the direction of a text."""
        return self.to(text.target_lang, text.source_lang or None)

    @property
    def is_zero_shot(self) -> bool:
        """True if the model was not trained on this pair of languages."""
        pairs = self.settings.trained_pairs
        return bool(pairs and self.format.source_lang) and (self.format.source_lang, self.chosen) not in pairs

    @property
    def target_lang(self) -> str:
        """The language of the output.

        Raises:
            InputError: it is still to be chosen.
        """
        return self.to(None).chosen or ""

    def translate(
        self, lines: Sequence[str], options: SearchOptions, first_line: LineNumbers = 1, prefixes: Sequence[str] = ()
    ) -> list[list[Candidate]]:
        """Return the n best translations of each line, best first; a line without letters and digits stays as it is.

        Translations begin with the `prefixes`, one for each line. A warning names each line longer than the model's
        limit by its number, unless `first_line` is None.

        Raises:
            InputError: the language is still to be chosen, or a prefix is longer than a translation may be, has unknown
                characters, or belongs to a long line.
        """
        self.to(None)  # raises
        prefixes = prefixes or [""] * len(lines)
        preprocessed = list(map(self._preprocessed, lines, prefixes))
        split = [self._split(line, prefix) for (line, _), prefix in zip(preprocessed, prefixes, strict=True)]
        numbers = range(first_line, first_line + len(lines)) if isinstance(first_line, int) else first_line
        for number, parts in zip(numbers or (), split, strict=False):
            if len(parts) > 1:
                log.warning("line %d is longer than the model's limit; translated in %d parts", number, len(parts))
        sentences = self._sentences(split, options, prefixes, numbers or range(1, len(lines) + 1))
        # Equal lines, as in a column of a table, have equal translations and samples.
        distinct = {(sentence.text, sentence.prefix.text): sentence for sentence in sentences}
        spelt = [self._spelt(sentence) if sentence.prefix.ids else sentence for sentence in distinct.values()]
        found = dict(zip(distinct, zip(spelt, self._search(spelt, options), strict=True), strict=True))
        results = (found[sentence.text, sentence.prefix.text] for sentence in sentences)
        candidates = [
            self._join([next(results) for _ in parts]) or [Candidate(normalized(without_line_breaks(line)), 0.0, 0.0)]
            for parts, line in zip(split, lines, strict=True)
        ]
        return [
            n_best if recase is None else [replace(c, text=recase(c.text, self.chosen or "")) for c in n_best]
            for n_best, (_, recase) in zip(candidates, preprocessed, strict=True)
        ]

    def check_prefixes(
        self, lines: Sequence[str], options: SearchOptions, first_line: int, prefixes: Sequence[str]
    ) -> None:
        """Raise the `InputError` that `translate` would raise for prefixes, without translating."""
        preprocessed = map(self._preprocessed, lines, prefixes)
        split = [self._split(line, prefix) for (line, _), prefix in zip(preprocessed, prefixes, strict=True)]
        self._sentences(split, options, prefixes, range(first_line, first_line + len(lines)))

    def _sentences(
        self, split: Sequence[list[str]], options: SearchOptions, prefixes: Sequence[str], numbers: Sequence[int]
    ) -> list[Sentence]:
        """Return the parts of all lines as tokens, with their terms and encoded prefixes."""
        parts = [part for line in split for part in line]
        spans = options.keep_spans and options.sampling is None
        terms = [self._terms.find(part, spans) for part in parts] if spans or self.glossary else []
        inline = terms if self.inline_terms and self.settings.inline_terms and not options.attention else []
        encoded = encode_with_terms(self.tokenizers.source, parts, inline, self._limit)
        ids = [self.tags.source(sentence) if sentence else [] for sentence in encoded]
        positions, n_tags = self.settings.max_positions, len(self._target_tags)
        bounds = [options.longest(len(sentence) + 2, positions) - n_tags for sentence in ids]
        if any(prefixes):
            spelt = list(speller_of(self.tokenizers.target).encode_all(split, ids, prefixes, numbers, bounds))
        else:
            spelt = [Prefix()] * len(ids)
        return [Sentence(*row) for row in zip(ids, spelt, terms or [[]] * len(ids), bounds, parts, strict=True)]

    def _spelt(self, sentence: Sentence) -> Sentence:
        """Return a sentence whose prefix has its likeliest tokens."""
        prefix = sentence.prefix
        [log_probs] = self._next_log_probs([sentence.source], [prefix.ids[:-1]])
        return sentence._replace(prefix=speller_of(self.tokenizers.target).likeliest(prefix, log_probs))

    def _search(self, sentences: Sequence[Sentence], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of sentences, which begin with their prefixes and have their terms."""
        rows = [row for row, sentence in enumerate(sentences) if sentence.terms]
        if not rows:
            return self._search_freely(sentences, options)
        if options.sampling is not None:
            raise InputError("samples cannot be made to have terms", "leave out the glossary, or --sample")
        # Separately from the others, whose translations must not depend on them.
        others = [row for row, sentence in enumerate(sentences) if not sentence.terms]
        results = dict(zip(others, self._search_freely([sentences[row] for row in others], options), strict=True))
        rows.sort(key=lambda row: -len(sentences[row].source))  # so that blocks have batches of similar length
        for start in range(0, len(rows), _TERM_BLOCK):
            block = rows[start : start + _TERM_BLOCK]
            results |= zip(block, self._search_terms([sentences[row] for row in block], options), strict=True)
        return [results[row] for row in range(len(sentences))]

    def _search_terms(self, sentences: Sequence[Sentence], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of sentences that have terms."""
        wants_attention = options.attention
        options = replace(options, attention=wants_attention or self.glossary is not None)  # it places terms
        wide = replace(options, n_best=options.beam_size, scores=True)
        target, spaced = self.tokenizers.target, bool(self.separator)
        search = TermSearch(self._search_freely, self._next_log_probs, target, spaced, self._aligned)
        completed = search.complete(sentences, self._search_freely(sentences, wide), options)
        best = [hypotheses[: options.n_best] for hypotheses in completed]
        return best if wants_attention else [[replace(h, attention=None) for h in n_best] for n_best in best]

    def _search_freely(self, sentences: Sequence[Sentence], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of sentences, which begin with their prefixes."""
        forced = [[*self._target_tags, *sentence.prefix.forced] for sentence in sentences]
        sources = [sentence.source for sentence in sentences]
        results = search_without_loops(self.engine, sources, options, forced if any(forced) else ())
        n_tags = len(self._target_tags)
        if n_tags or self.settings.guided:  # a guided head aligns a token when it reads it, one position later
            n_rows = n_tags + self.settings.guided
            results = [
                [replace(h, ids=h.ids[n_tags:], attention=h.attention and h.attention[n_rows:]) for h in n_best]
                for n_best in results
            ]
        return results

    def _next_log_probs(self, sources: Sentences, targets: Sentences) -> "Iterator[NDArray[np.float32]]":
        tagged = [[*self._target_tags, *target] for target in targets]
        return (rows[len(self._target_tags) :] for rows in self.engine.next_log_probs(sources, tagged))

    def best(self, lines: Sequence[str], options: SearchOptions) -> list[str]:
        """Return the best translation of each line, without warnings about long lines."""
        return [candidates[0].text for candidates in self.translate(lines, replace(options, scores=False), None)]

    def term_share(self, lines: Sequence[str], translations: Sequence[str]) -> float | None:
        """Return the percentage of lines with terms whose translations have all of them; None without such lines."""
        return self._terms.share(list(map(self.plain, lines)), translations) if self.glossary else None

    def warn_long_lines(self, lines: Sequence[str], text_name: str) -> None:
        """Log one warning about all lines longer than the model's limit."""
        long = [n for n, line in enumerate(lines, 1) if len(self._split(self._preprocessed(line).line)) > 1]
        if long:
            message = "%s: %d of %d lines are longer than the model's limit (line %d is the first); translated in parts"
            log.warning(message, text_name, len(long), len(lines), long[0])

    def align(self, line: str, candidate: Candidate) -> list[Unit]:
        """Align the words of a translation, made with `SearchOptions.attention`, to its source line."""
        preprocessed, recase = self._preprocessed(line, candidate.prefix)
        source, text = normalized(preprocessed), candidate.text  # the source as the model reads it
        starts = word_starts(source), word_starts(line)
        if len(candidate.parts) != 1 or len(starts[0]) != len(starts[1]):
            return align_units(line, text)
        if recase is not None:
            # Align the text as its pieces spell it, unless recasing changed its length, as of ß to SS.
            decoded = self.tokenizers.target.decode(candidate.parts[0].target).strip()
            text = decoded if len(decoded) == len(text) else text
        positions = defaultdict(int, zip(*starts, strict=True))
        return [unit.moved(positions) for unit in self._align_part(source, text, candidate.parts[0])]

    def _aligned(self, sentence: Sentence, hypothesis: Hypothesis) -> list[Unit]:
        part = Part(sentence.source, hypothesis.ids, hypothesis.attention)
        return self._align_part(sentence.text, self.tokenizers.target.decode(part.target).strip(), part)

    def _align_part(self, source: str, target: str, part: Part) -> list[Unit]:
        """Align the words of a part by its attention, without that to the source's tags."""
        span = slice(len(self.tags.before), len(part.source) - len(self.tags.after))
        pieces = self.tokenizers.source.tokens(part.source[span]), self.tokenizers.target.tokens(part.target)
        rows = None if part.attention is None else [row[span] for row in part.attention]
        return align_units(source, target, pieces, rows)

    def _preprocessed(self, line: str, prefix: str = "") -> Preprocessed:
        """Return a line with case and spelling restored; a prefix decides the case of its translation instead."""
        line = self.plain(line)
        return self.preprocessing.apply(line, self.format.source_lang, bool(prefix.strip()), self._terms.spans)

    def plain(self, line: str) -> str:
        """Return a line without the white space that training text seldom has."""
        languages = [self.format.source_lang] if self.format.source_lang else self.settings.source_langs
        return with_plain_spaces(line) if all(map(is_spaced, languages)) else without_line_breaks(line)

    def _split(self, line: str, prefix: str = "") -> list[str]:
        """Return the parts of a line to translate; none of one without letters, digits, terms and a prefix."""
        is_text = any(map(str.isalnum, line)) or bool(prefix.strip() or (self.glossary and self._terms.find(line)))
        return parts_of(line, self.tokenizers.source, self._limit) if is_text else []

    def _join(self, parts: list[tuple[Sentence, list[Hypothesis]]]) -> list[Candidate]:
        """Join the parts of a line, each with its hypotheses, rank by rank; a line without parts has no candidates."""
        candidates, prefix = [], parts[0][0].prefix if parts else Prefix()
        for rank in range(max((len(hypotheses) for _, hypotheses in parts), default=0)):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for _, hypotheses in parts]
            if prefix.text:
                texts = [speller_of(self.tokenizers.target).decode(prefix, chosen[0].ids)]
            else:
                texts = self.tokenizers.target.decode_batch([h.ids for h in chosen])
                texts = [without_broken_bytes(text).strip() or text for text in texts]
            joined = self.separator.join(text.strip() for text in texts)
            one_line = joined.replace("\r", " ").replace("\n", " ")  # a model can spell a line break in bytes
            tokens = tuple(Part(part.source, h.ids, h.attention) for (part, _), h in zip(parts, chosen, strict=True))
            score, log_prob = sum(h.score for h in chosen), sum(h.log_prob for h in chosen)
            candidates.append(Candidate(one_line, score, log_prob, prefix.text, tokens))
        return candidates
