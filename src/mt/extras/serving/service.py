"""Translation and language detection of validated requests."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from mt.bundle.load_translator import open_model, read_config
from mt.data.glossary import Glossary
from mt.decoding.alignment import Unit
from mt.decoding.candidates import Candidate
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.decoding.translator import Translator
from mt.errors import InputError
from mt.extras.serving.batching import Batcher
from mt.extras.serving.limits import Limits, Metrics, RequestError
from mt.extras.serving.segmentation import segment_html, segment_plain
from mt.storage.atomic import append_line
from mt.storage.run_dir import ModelDir
from mt.text.language_id import Detector
from mt.text.languages import base_language, language_name

_T = TypeVar("_T")
_MAX_SUGGESTIONS = 100_000_000  # bytes of their file


@dataclass(frozen=True)
class Direction:
    """A language pair and its model."""

    source: str
    target: str
    translator: Translator
    search: SearchOptions
    name: str = ""  # of the model


def open_directions(
    folders: Sequence[ModelDir], choice: EngineChoice, glossary: Glossary | None = None
) -> list[Direction]:
    """Open models, which share a glossary.

    Raises:
        InputError: a folder is incomplete, two models have the same direction, or the glossary does not name the
            languages of several.
    """
    configs = [read_config(folder) for folder in folders]
    if glossary is not None and sum(len(config.data.pairs) for config in configs) > 1:
        glossary.require_languages()
        glossary = glossary.optional()
    directions: list[Direction] = []
    owners: dict[tuple[str, str], ModelDir] = {}
    for folder, config in zip(folders, configs, strict=True):
        opened = open_model(folder, choice).with_glossary(glossary)
        for source, target in config.data.pairs:
            if other := owners.get((source, target)):
                message = f"{folder.root}: it translates from {source} to {target}, and so does {other.root}"
                raise InputError(message, "serve one of them")
            owners[source, target] = folder
            translator = opened.translator.to(target, source)
            directions.append(Direction(source, target, translator, opened.settings.search, config.name))
    return directions


@dataclass(frozen=True)
class Request:
    """A validated request to translate."""

    texts: list[str]
    source: str  # language code or `auto`
    target: str
    is_html: bool
    alternatives: int  # n-best translations beside the first
    is_list: bool  # False: the client sent a single text


# The direction of a text, None if it is in the target language; for `auto`, the detected language and confidence in %
_Choice = tuple[Direction | None, tuple[str, float] | None]


class Service:
    """Translate requests with the model for their direction."""

    def __init__(self, directions: Sequence[Direction], limits: Limits, metrics: Metrics) -> None:
        self.default = directions[0]
        self._directions = {(direction.source, direction.target): direction for direction in directions}
        self._codes = list(dict.fromkeys(code for pair in self._directions for code in pair))
        # A detected language is reported by a code that is served, if possible by that of a source.
        sources_first = [code for side in zip(*self._directions, strict=True) for code in side]
        self._detected = {base_language(code): code for code in reversed(sources_first)}
        self._detected |= {code: code for code in self._codes}
        self._metrics = metrics
        self._detector = Detector(self._codes)
        self._detector.rank("a")  # load the detector now, not at the first request
        # Segmenting and assembling run here, one request at a time, to keep the event loop responsive.
        self._thread = ThreadPoolExecutor(1, "markup")
        self._batcher = Batcher(limits.waiting, metrics)
        self._seconds = limits.seconds

    def close(self) -> None:
        """Stop the threads after their current work."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._batcher.close()

    def models(self) -> list[dict[str, str]]:
        """Return the model's name and the languages of each direction."""
        return [{"name": d.name, "source": d.source, "target": d.target} for d in self._directions.values()]

    def languages(self) -> list[dict[str, Any]]:
        """Return LibreTranslate's list of languages and their targets."""
        return [
            {"code": code, "name": language_name(code), "targets": [t for s, t in self._directions if s == code]}
            for code in self._codes
        ]

    async def detect(self, text: str) -> list[dict[str, Any]]:
        """Return LibreTranslate's list of likely languages, under the codes of those that are served."""
        ranked = await self.in_thread(lambda: self._detector.rank(text))
        likely = [(code, confidence) for code, confidence in ranked if confidence >= 1] or ranked[:1]
        return [{"confidence": confidence, "language": self._detected.get(code, code)} for code, confidence in likely]

    async def translate(self, request: Request) -> dict[str, Any]:
        """Return LibreTranslate's response to a request, whose texts may each be in another language.

        Each value is a list if the client sent one. Alternatives are distinct, the best first.
        """
        options = request.source, request.target, request.is_html
        chosen = await self.in_thread(lambda: [self._direction(text, *options) for text in request.texts])
        # A text already in the target language stays as it is.
        results: list[tuple[str, list[str]]] = [(text, []) for text in request.texts]
        deadline = asyncio.get_running_loop().time() + self._seconds  # shared by all directions
        for direction in dict.fromkeys(direction for direction, _ in chosen if direction is not None):
            indices = [i for i, (other, _) in enumerate(chosen) if other is direction]
            texts = [request.texts[i] for i in indices]
            for i, result in zip(indices, await self._translate(texts, direction, request, deadline), strict=True):
                results[i] = result
        response: dict[str, Any] = {"translatedText": [text for text, _ in results]}
        if request.alternatives:
            response["alternatives"] = [alternatives for _, alternatives in results]
        if detections := [detected for _, detected in chosen if detected is not None]:
            response["detectedLanguage"] = [{"confidence": confidence, "language": c} for c, confidence in detections]
        return response if request.is_list else {key: values[0] for key, values in response.items()}

    async def direction(self, sample: str, source: str, target: str) -> _Choice:
        """Choose the direction of a document, as `translate` does of a text."""
        return await self.in_thread(lambda: self._direction(sample, source, target))

    async def translate_sentences(
        self, sentences: Sequence[str], direction: Direction, aligned: bool
    ) -> list[tuple[str, Sequence[Unit]]]:
        """Translate part of a document, and align its words if asked."""
        options = replace(direction.search, n_best=1, scores=False, attention=aligned)
        found = [best for [best] in await self._search(direction, sentences, options, even_if_full=True)]
        if not aligned:
            return [(best.text, ()) for best in found]
        align = direction.translator.align
        pairs = zip(sentences, found, strict=True)
        return await self.in_thread(lambda: [(best.text, align(sentence, best)) for sentence, best in pairs])

    async def _search(
        self,
        direction: Direction,
        sentences: Sequence[str],
        options: SearchOptions,
        even_if_full: bool,
        deadline: float | None = None,
    ) -> list[list[Candidate]]:
        """Translate sentences in batches and count their characters; a RequestError (503) after the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                n_best = await self._batcher.translate(direction.translator, sentences, options, even_if_full)
        except TimeoutError:
            message = f"no translation within {self._seconds:g} s; try again later"
            raise RequestError(503, message, {"Retry-After": "1"}) from None
        self._metrics.characters.labels(direction.source, direction.target).inc(sum(map(len, sentences)))
        return n_best

    async def suggest(self, suggestion: dict[str, str], file: Path) -> None:
        """Append a client's better translation to a file; a RequestError says that it is full."""
        self.require_served(suggestion["source"], suggestion["target"])

        def append() -> None:
            if file.exists() and file.stat().st_size > _MAX_SUGGESTIONS:
                raise RequestError(503, "this server has no room for more suggestions")
            append_line(file, json.dumps(suggestion, ensure_ascii=False))

        await self.in_thread(append)

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def require_served(self, *codes: str) -> None:
        """Raise a RequestError (400) for a code that is neither a source nor a target of a model."""
        for code in codes:
            if code not in self._codes:
                raise RequestError(400, f"{code} is not supported")

    def _direction(self, text: str, source: str, target: str, is_html: bool = False) -> _Choice:
        """Choose the direction of a text (None if it is already in the target language); for `auto`, detect it."""
        detected = None
        self.require_served(*([] if source == "auto" else [source]), target)
        if source == "auto":
            candidates = [source for source, other in self._directions if other == target]
            content = " ".join(segment_html(text, " ").sentences) if is_html else text
            detected = self._detector.source_of(content, candidates or sorted(self._codes), target)
            source = detected[0]
        if (source, target) in self._directions:
            return self._directions[source, target], detected
        if source == target:
            return None, detected
        raise RequestError(400, f"no model here translates from {source} to {target}")

    async def _translate(
        self, texts: Sequence[str], direction: Direction, request: Request, deadline: float
    ) -> list[tuple[str, list[str]]]:
        """Return each text's translation and alternatives."""
        translator = direction.translator
        segment = segment_html if request.is_html else segment_plain
        segmented = await self.in_thread(
            lambda: [segment(text, translator.separator, direction.source) for text in texts]
        )
        n_best = 1 + request.alternatives
        beam = max(direction.search.beam_size, n_best)  # at least as wide as the n-best list
        options = replace(direction.search, beam_size=beam, n_best=n_best, scores=n_best > 1)
        n_best_lists: dict[bool, Iterator[list[Candidate]]] = {}
        # In two calls: sentences translated with attention cannot have terms in their source. The batcher may refuse
        # the first call only, as half a request is of no use.
        for aligned in dict.fromkeys(text.needs_alignment for text in segmented if text.sentences):
            batch = [sentence for text in segmented if text.needs_alignment is aligned for sentence in text.sentences]
            arguments = direction, batch, replace(options, attention=aligned)
            n_best_lists[aligned] = iter(await self._search(*arguments, bool(n_best_lists), deadline))

        def assemble() -> list[tuple[str, list[str]]]:
            results = []
            for text in segmented:
                n_best_of_text = [next(n_best_lists[text.needs_alignment]) for _ in text.sentences]
                # Each sentence's best, each second-best, and so on
                ranked = dict.fromkeys(
                    text.assemble([ranks[min(rank, len(ranks) - 1)] for ranks in n_best_of_text], translator.align)
                    for rank in range(n_best)
                )
                best, *alternatives = ranked
                results.append((best, alternatives))
            return results

        return await self.in_thread(assemble)
