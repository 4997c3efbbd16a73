"""Directions of a loaded model: their choice, a notice of zero-shot pairs, and detection of the source language."""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import replace
from itertools import chain, islice, repeat

from mt.api.texts import Texts, check_text, refuse_unpaired, texts_of
from mt.console import log
from mt.decoding.candidates import Candidate
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator
from mt.errors import InputError, require_package
from mt.text.language_id import Detector

AUTO = "auto"  # the source language is to be detected
_CHECKED_AT_ONCE = 1000  # lines with their prefixes


class Directions:
    """The directions of a model; no languages are chosen in `translator` yet."""

    def __init__(self, translator: Translator) -> None:
        self._translator = self._detecting = translator
        if translator.glossary is not None and len(translator.settings.source_langs) > 1:
            self._detecting = replace(translator, glossary=translator.glossary.optional())
        self._detector: Detector | None = None
        self._warned: set[tuple[str, str]] = set()  # zero-shot pairs

    def into(self, to: str | None, source_lang: str | None, is_detected: bool = False) -> Translator:
        """Return the translator of a direction; from "auto", of any direction into `to`, without its glossary.

        Raises:
            InputError: the model does not have the languages, one must be named, detection is impossible, or the
                glossary does not name the languages.
        """
        if source_lang == AUTO:
            self._load_detector()
            others = [code for code in self._translator.settings.source_langs if code != to]
            if self._translator.glossary is not None and len(others) > 1:
                self._translator.glossary.require_languages()
            return replace(self._translator, glossary=None).to(to, next(iter(others), None))
        translator = (self._detecting if is_detected else self._translator).to(to, source_lang)
        pair = translator.format.source_lang, translator.chosen or ""
        if translator.is_zero_shot and pair not in self._warned:
            self._warned.add(pair)
            log.warning("from %s to %s is zero-shot: the model was not trained on this pair of its languages", *pair)
        return translator

    def source_of(self, text: str, target_lang: str) -> str | None:
        """Return the likeliest of the model's source languages of a text; None if it is in the target language."""
        codes = self._translator.settings.source_langs
        if self._detector is None:
            return next(iter(codes), "")
        others = [code for code in codes if code != target_lang]
        code = self._detector.source_of(text, others, target_lang)[0]
        return None if code == target_lang else code

    def detected(self, sample: str, into: Translator) -> Translator | None:
        """Return the translator from the language of a document; None if it is in the target language."""
        code = self.source_of(sample, into.target_lang)
        return None if code is None else self.into(into.target_lang, code, is_detected=True)

    def check_prefixes(
        self, into: Translator, lines: Texts, prefixes: Texts, options: SearchOptions, first_line: int, detects: bool
    ) -> None:
        """Refuse a prefix that no translation can begin with, and one without a line; iterators are not read.

        With `detects`, the source language of each line is still to be detected.
        """
        is_empty = isinstance(prefixes, str) and not prefixes  # an array has no truth value
        if is_empty or isinstance(lines, Iterator) or isinstance(prefixes, Iterator):
            return
        if isinstance(lines, Sized) and isinstance(prefixes, Sized) and not isinstance(prefixes, str):
            refuse_unpaired(1 if isinstance(lines, str) else len(lines), len(prefixes), first_line)
        per_line = repeat(prefixes) if isinstance(prefixes, str) else texts_of(prefixes)
        pairs = zip(texts_of(lines), per_line, strict=False)
        while block := list(islice(pairs, _CHECKED_AT_ONCE)):
            for text in chain.from_iterable(block):
                check_text(text)
            block_lines, block_prefixes = [line for line, _ in block], [prefix for _, prefix in block]
            into.check_prefixes(block_lines, options, first_line, block_prefixes)
            if detects:
                self._refuse_translated(block_lines, into.target_lang, block_prefixes, first_line)
            first_line += len(block)

    def _refuse_translated(
        self, lines: Sequence[str], target_lang: str, prefixes: Sequence[str], first_line: int
    ) -> None:
        """Refuse a prefix for a line that is in the target language already, and so is not translated."""
        for number, (line, prefix) in enumerate(zip(lines, prefixes, strict=True), first_line):
            if prefix.strip() and self.source_of(line, target_lang) is None:
                message = f"line {number} is in {target_lang} already, and has a prefix"
                raise InputError(message, "name its source language, or leave the prefix empty")

    def translate_detected(
        self, lines: Sequence[str], into: Translator, options: SearchOptions, first_line: int, prefixes: Sequence[str]
    ) -> list[list[Candidate]]:
        """Translate each line from the language that it is in; one in the target language stays as it is.

        `into` has the target language, and its `inline_terms` is used for all of them.

        Raises:
            InputError: there is a prefix for a line in the target language.
        """
        target_lang = into.target_lang
        self._refuse_translated(lines, target_lang, prefixes, first_line)
        sources = [self.source_of(line, target_lang) for line in lines]
        candidates = {i: [Candidate(line, 0.0, 0.0)] for i, line in enumerate(lines)}
        for code in dict.fromkeys(sources):
            if code is not None:
                rows = [i for i, source in enumerate(sources) if source == code]
                row_lines, row_prefixes = [lines[i] for i in rows], [prefixes[i] for i in rows]
                translator = replace(self.into(target_lang, code, is_detected=True), inline_terms=into.inline_terms)
                translated = translator.translate(row_lines, options, [first_line + i for i in rows], row_prefixes)
                candidates |= zip(rows, translated, strict=True)
        return [candidates[i] for i in range(len(lines))]

    def _load_detector(self) -> None:
        codes = self._translator.settings.source_langs
        if len(codes) < 2 or self._detector is not None:
            return
        hint = "pip install 'mt-train[data]', or name the language"
        require_package("py3langid", "detection of the source language", hint)
        detector = Detector(codes)
        if unknown := [code for code in codes if not detector.supports(code)]:
            raise InputError(f"the source language cannot be detected: {unknown[0]} is unknown to py3langid", "name it")
        self._detector = detector
