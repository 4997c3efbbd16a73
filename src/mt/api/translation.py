"""Translation from Python: load a model, translate strings, get details where they are asked for."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from mt.api.directions import AUTO, Directions
from mt.api.search import Arguments, Search, SearchRequest, Translation
from mt.api.texts import Texts, check_text, refuse_unpaired, texts_of
from mt.bundle.load_translator import OpenedModel
from mt.data.sentence_format import Tags
from mt.decoding.alignment import Unit
from mt.decoding.candidates import Candidate, best_of, lines_at_once
from mt.errors import InputError, contradict, memory_explained
from mt.storage.manifest import DamagedError, read_manifest
from mt.text.lines import take_block, without_line_breaks

if TYPE_CHECKING:
    from mt.decoding.scoring import Scored
    from mt.extras.documents.translating import DocumentSummary

_PROGRESS_SENTENCES = 256  # of a document, between two calls of `progress`
BLOCK_LINES = 4000  # sorted by length they make good batches, and results still flow


class Translator:
    """A loaded model. Its methods may be called from several threads at once.

    Args:
        opened: the model with its engine.
        path: the model folder; of an ensemble the first.
    """

    def __init__(self, opened: OpenedModel, path: Path) -> None:
        self._opened = opened
        self.path = path
        self._directions = Directions(opened.translator)
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<Translator {self.path}, into {', '.join(self.target_langs)}, {self.engine}>"

    @property
    def engine(self) -> str:
        """The engine in use with its number format and device."""
        return self._opened.engine

    @property
    def target_langs(self) -> tuple[str, ...]:
        """The languages that the model translates into."""
        return self._opened.settings.target_langs

    @property
    def source_langs(self) -> tuple[str, ...]:
        """The languages that the model translates from."""
        return self._opened.settings.source_langs

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of a source and a target language that the model was trained on."""
        return self._opened.settings.trained_pairs

    @property
    def direction(self) -> str:
        """The languages, as in `en to de`."""
        return f"{', '.join(self.source_langs)} to {', '.join(self.target_langs)}"

    @property
    def test_bleu(self) -> float | None:
        """The best BLEU on the test set at the end of the training; None for a model that was never scored."""
        try:
            tests = read_manifest(self.path).get("test", [])
        except DamagedError:  # a checkpoint
            return None
        return max((test["bleu"] for test in tests if test.get("bleu") is not None), default=None)

    @overload  # a string is a sequence of strings, too: mypy cannot know that its overloads come first
    def translate(  # type: ignore[overload-overlap]
        self, text: str, *, n_best: None = None, details: Literal[False] = False, **options: Unpack[Arguments]
    ) -> str: ...
    @overload
    def translate(  # type: ignore[overload-overlap]
        self, text: str, *, n_best: int, details: Literal[False] = False, **options: Unpack[Arguments]
    ) -> list[str]: ...
    @overload
    def translate(  # type: ignore[overload-overlap]
        self, text: str, *, n_best: int | None = None, details: Literal[True], **options: Unpack[Arguments]
    ) -> Translation: ...
    @overload
    def translate(
        self, text: Iterable[str], *, n_best: None = None, details: Literal[False] = False, **o: Unpack[Arguments]
    ) -> list[str]: ...
    @overload
    def translate(
        self, text: Iterable[str], *, n_best: int, details: Literal[False] = False, **options: Unpack[Arguments]
    ) -> list[list[str]]: ...
    @overload
    def translate(
        self, text: Iterable[str], *, n_best: int | None = None, details: Literal[True], **o: Unpack[Arguments]
    ) -> list[Translation]: ...
    def translate(
        self, text: str | Iterable[str], *, n_best: int | None = None, details: bool = False, **options: Any
    ) -> Any:
        """Translate a text, or each of several; long ones are translated in parts, empty ones stay empty.

        Args:
            text: one string, or several.
            n_best: return a list of this many translations of each text, best first.
            details: return a `Translation` for each text instead of strings.
            **options: `source_lang` and `target_lang` (or `to`), where the model has several (`source_lang="auto"`
                detects the language), `attention` (with `details`), `prefix` (one for all, or one for each text),
                and the arguments of `mt.api.search.Search`: `beam_size`, `length_penalty`, `sample`, ...

        Raises:
            InputError: not strings, unknown or contradicting arguments, or an unknown language.
        """
        if details not in (True, False):
            raise InputError(f"details: {details!r:.50} is neither True nor False")
        options.setdefault("scores", details or n_best is not None)
        results = list(self.results(text, 1 if n_best is None else n_best, **options))
        texts = [r.text if n_best is None else [candidate.text for candidate in r.n_best] for r in results]
        answers: list[Any] = results if details else texts
        return answers[0] if isinstance(text, str) else answers

    def stream(self, lines: str | Iterable[str], **options: Unpack[Arguments]) -> Iterator[str]:
        """Yield the translation of each line, in order; lines are read a block at a time, so memory stays bounded."""
        for result in self.results(lines, 1, scores=False, **options):
            yield result.text

    def translate_document(
        self,
        source: str | Path,
        output: str | Path,
        *,
        format_: str | None = None,
        columns: str | None = None,
        to: str | None = None,
        source_lang: str | None = None,
        progress: Callable[[int, int], None] | None = None,
        request: SearchRequest | None = None,
        **search: Unpack[Search],
    ) -> "DocumentSummary":
        """Translate a document into a new file of the same kind: structure, formatting, code and placeholders stay.

        Args:
            source, output: the files; `output` is replaced once it is complete.
            format_: the kind, where the name of `source` does not say it: docx, odt, pptx, epub, html, md, srt, vtt,
                po, xliff, tmx, csv or tsv.
            columns: of a table: SOURCE or SOURCE:TARGET, names or numbers from 1.
            to, source_lang: the languages, where the model has several.
            progress: called with the number of sentences translated so far, and of all.
            request: a search that is checked already, instead of the arguments of `Search`.

        Raises:
            InputError: not a document of this kind, damaged, protected by a password, or too large.
        """
        from mt.extras.documents.translating import translate_document

        request, into = request or SearchRequest.of(search), self._directions.into(to, source_lang)
        self._check_engine(request)
        known = source_lang if source_lang not in (None, AUTO) else "".join(self.source_langs[:1])
        translator = None if source_lang == AUTO else into

        def detect(sample: str) -> bool:
            nonlocal translator
            translator = self._directions.detected(sample, into)
            return translator is not None

        def translate(texts: list[str], aligned: bool) -> list[tuple[str, Sequence[Unit]]]:
            utility, done = request.utility_in(into.target_lang), list[tuple[str, Sequence[Unit]]]()
            assert translator is not None  # a document in the target language stays
            options = replace(request.options(self._opened.settings.search, scores=False), attention=aligned)
            for start in range(0, len(texts), size := lines_at_once(_PROGRESS_SENTENCES, options.n_best)):
                block = texts[start : start + size]
                for line, candidates in zip(block, translator.translate(block, options, None), strict=True):
                    [best] = best_of(candidates, utility, 1, options.sampling is not None)
                    done.append((best.text, translator.align(line, best) if aligned else ()))
                if progress is not None:
                    progress(len(done), len(texts))
            return done

        is_known = source_lang not in (None, AUTO) or len(self.source_langs) == 1
        chosen: dict[str, Any] = {"format_": format_, "columns": columns, "languages": (known or "?", into.target_lang)}
        chosen |= {"check_source": is_known, "show_sample": detect if source_lang == AUTO else None}
        return translate_document(Path(source), Path(output), translate, **chosen)

    def score(
        self, pairs: Iterable[tuple[str, str]], *, to: str | None = None, source_lang: str | None = None
    ) -> "Iterator[Scored | None]":
        """Yield `log_prob` and `tokens` of each (source, translation) under a single model on torch.

        `log_prob` is the natural logarithm of the translation's probability, the end of the sentence counted among the
        `tokens`; None where the source is empty, a side is longer than the model takes, or the translation has
        characters unknown to it.

        Raises:
            InputError: the engine is not torch, the model an ensemble, the language unknown, or a side is no string.
        """
        from mt.decoding.scoring import score_pairs

        opened, remaining = self._opened, iter(pairs)
        if opened.model is None:
            raise InputError("scores take a single model on torch", "load the model with engine='torch'")
        translator = opened.translator.to(to, source_lang)
        while block := take_block(remaining, BLOCK_LINES):
            for source, target in block:
                check_text(source)
                check_text(target)
            cleaned = [(translator.plain(source), without_line_breaks(target)) for source, target in block]
            with memory_explained("close other programs"):
                yield from score_pairs(opened.model, opened.tokenizers, translator.tags, opened.settings, cleaned)

    def results(
        self,
        lines: Texts,
        n_best: int = 1,
        *,
        to: str | None = None,
        source_lang: str | None = None,
        target_lang: str | None = None,
        attention: bool = False,
        scores: bool = True,
        first_line: int = 1,
        request: SearchRequest | None = None,
        prefix: Texts = "",
        **search: Unpack[Search],
    ) -> Iterator[Translation]:
        """Yield a `Translation` for each line.

        Args:
            lines: the lines to translate, or just one.
            n_best: how many translations to keep of each, distinct unless they are sampled.
            to: the target language, where the model has several.
            source_lang: the source language, needed only by a model that has a tag for it; "auto" detects it by line.
            target_lang: another name of `to`.
            attention: read the attention weights, and word alignments from them; needs a single model on torch.
            scores: False where they are not needed, which makes greedy search faster.
            first_line: the number of the first line, for warnings of long lines.
            request: a search that is checked already, instead of the arguments of `Search`.
            prefix: text that translations begin with: one for all, or one for each line; an empty one has no effect.
        """
        request = request or SearchRequest.of(search, n_best)
        contradict(None not in (to, target_lang), "to", "target_lang")
        into = self._directions.into(to or target_lang, source_lang)
        self._check_engine(request)
        if attention and self._opened.model is None:
            raise InputError("attention takes a single model on torch", "load the model with engine='torch'")
        into = replace(into, inline_terms=False) if attention else into
        options = request.options(self._opened.settings.search, scores or n_best > 1)
        utility = request.utility_in(into.target_lang)
        self._directions.check_prefixes(into, lines, prefix, options, first_line, source_lang == AUTO)
        remaining, prefixes = texts_of(lines), repeat(prefix) if isinstance(prefix, str) else texts_of(prefix)
        while block := take_block(remaining, lines_at_once(BLOCK_LINES, options.n_best)):
            block_prefixes = list(islice(prefixes, len(block)))
            refuse_unpaired(len(block), len(block_prefixes), first_line)
            for line in [*block, *block_prefixes]:
                check_text(line)
            if source_lang == AUTO:
                translated = self._directions.translate_detected(block, into, options, first_line, block_prefixes)
            else:
                translated = into.translate(block, options, first_line, block_prefixes)
            for line, candidates in zip(block, translated, strict=True):
                best = best_of(candidates, utility, n_best, options.sampling is not None)
                yield self._result(line, best, into.tags if attention else None)
            first_line += len(block)
        if not isinstance(prefix, str):
            refuse_unpaired(0, len(list(islice(prefixes, 1))), first_line)

    def _check_engine(self, request: SearchRequest) -> None:
        if os.getpid() != self._pid and "CTranslate2" in self.engine:  # its threads are in the other process
            raise InputError("the model was loaded before this process was forked", "load it in each process")
        if request.sampling is not None and "torch" not in self.engine:
            raise InputError("this engine does not draw reproducible samples", "load the model with engine='torch'")
        has_terms = self._opened.translator.glossary is not None
        contradict(request.sampling is not None and has_terms, request.name("sample"), "a glossary or text to keep")

    def _result(self, line: str, best: list[Candidate], tags: Tags | None) -> Translation:
        """Return the `Translation` of a line; with its attention if the tags of the direction are given."""
        source, target = self._opened.tokenizers.source, self._opened.tokenizers.target
        source_tokens = tuple(piece for part in best[0].parts for piece in source.tokens(part.source))
        tokens = tuple(piece for part in best[0].parts for piece in target.tokens(part.target))
        weights = None
        if tags is not None:
            from mt.decoding.attention_weights import read_attention

            assert self._opened.model is not None
            weights = tuple(read_attention(self._opened.model, self._opened.tokenizers, best[0], tags))
        return Translation(line, tuple(best), source_tokens, tokens, weights)
