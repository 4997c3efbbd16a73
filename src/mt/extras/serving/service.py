"""Translation and language detection of validated requests."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mt.bundle.load_translator import open_model, read_config
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.decoding.translator import Candidate, Translator
from mt.errors import InputError
from mt.extras.serving.batching import Batcher
from mt.extras.serving.limits import Limits, RequestError
from mt.extras.serving.metrics import Metrics
from mt.extras.serving.texts import Pieces, html_pieces, plain_pieces
from mt.storage.run_dir import ModelDir
from mt.text.language_id import Detector
from mt.text.languages import language_name

_T = TypeVar("_T")
_SURE = 50.0  # percent of confidence that a text need not be translated


@dataclass(frozen=True)
class Direction:
    """A language pair and its model."""

    source: str
    target: str
    translator: Translator
    search: SearchOptions


def open_directions(folders: Sequence[ModelDir], choice: EngineChoice) -> list[Direction]:
    """Open models.

    Raises:
        InputError: a model folder is incomplete, or two models have the same direction.
    """
    found: dict[tuple[str, str], Direction] = {}
    owners: dict[tuple[str, str], ModelDir] = {}
    for folder in folders:
        config, opened = read_config(folder), open_model(folder, choice)
        for target in config.data.target_lang:
            pair = (config.data.source_lang, target)
            if pair in owners:
                raise InputError(
                    f"{folder.root}: it translates from {pair[0]} to {pair[1]}, and so does {owners[pair].root}",
                    "serve one of them",
                )
            owners[pair] = folder
            found[pair] = Direction(*pair, opened.translator.to(target), opened.settings.search)
    return list(found.values())


@dataclass(frozen=True)
class Request:
    """A validated request to translate.

    Attributes:
        texts: texts to translate.
        source: language code or `auto`.
        target: language code.
        is_html: whether the texts are HTML.
        alternatives: n-best translations beside the first.
    """

    texts: list[str]
    source: str
    target: str
    is_html: bool = False
    alternatives: int = 0


@dataclass(frozen=True)
class Translation:
    """The translation of a text.

    Attributes:
        alternatives: further distinct translations, best first.
        detected: for `auto`, the language and the confidence in percent.
    """

    text: str
    alternatives: list[str]
    detected: tuple[str, float] | None


class Service:
    """Translate requests with the model for their direction.

    Args:
        directions: the loaded models.
        limits: bounds on requests.
        metrics: counters.
    """

    def __init__(self, directions: Sequence[Direction], limits: Limits, metrics: Metrics) -> None:
        self._directions = {(direction.source, direction.target): direction for direction in directions}
        self._metrics = metrics
        self._detector = Detector([code for pair in self._directions for code in pair])
        self._detector.rank("a")  # load the detector now, not at the first request
        # Splitting and joining run here, one request at a time, to keep the event loop responsive.
        self._thread = ThreadPoolExecutor(1, "markup")
        self.batcher = Batcher(limits.waiting, limits.seconds, metrics)

    def close(self) -> None:
        """Stop the threads after their current work."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.batcher.close()

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def languages(self) -> list[dict[str, Any]]:
        """Return LibreTranslate's list of languages and their targets."""
        codes = dict.fromkeys(code for pair in self._directions for code in pair)
        return [
            {"code": code, "name": language_name(code), "targets": [t for s, t in self._directions if s == code]}
            for code in codes
        ]

    def first(self) -> Direction:
        """Return the default direction."""
        return next(iter(self._directions.values()))

    def detect(self, text: str) -> list[dict[str, Any]]:
        """Return LibreTranslate's list of likely languages."""
        ranked = self._detector.rank(text)
        likely = [one for one in ranked if one[1] >= 1] or ranked[:1]
        return [{"confidence": confidence, "language": code} for code, confidence in likely]

    async def translate(self, request: Request) -> list[Translation]:
        """Translate the texts of a request, each possibly in another language.

        Raises:
            RequestError: no model for the direction, or the server is busy.
        """
        chosen = await self.in_thread(lambda: [self._direction(text, request) for text in request.texts])
        found: dict[int, Translation] = {}
        deadline = self.batcher.deadline()  # shared by all directions
        for direction in dict.fromkeys(direction for direction, _ in chosen):
            own = [i for i, (each, _) in enumerate(chosen) if each is direction]
            texts = [request.texts[i] for i in own]
            if direction is None:
                translated: list[tuple[str, list[str]]] = [(text, []) for text in texts]
            else:
                translated = await self._translate(texts, direction, request, deadline)
            for i, (text, alternatives) in zip(own, translated, strict=True):
                found[i] = Translation(text, alternatives, chosen[i][1])
        return [found[i] for i in range(len(request.texts))]

    def _direction(self, text: str, request: Request) -> tuple[Direction | None, tuple[str, float] | None]:
        """Choose the direction of a text and, for `auto`, detect its language.

        None is returned for a text already in the target language, which stays as it is.
        """
        detected = None
        source = request.source
        known = {code for pair in self._directions for code in pair}
        if source == "auto":
            if request.target not in known:
                raise RequestError(400, f"{request.target} is not supported")
            codes = [source for source, target in self._directions if target == request.target]
            words = " ".join(html_pieces(text, " ").sentences) if request.is_html else text
            already = self._detector.best_of(words, [request.target])
            detected = self._detector.best_of(words, codes or sorted(known))
            if already[1] > _SURE and already[1] >= detected[1]:
                return None, already
            source = detected[0]
        direction = self._directions.get((source, request.target))
        if direction is None:
            if source == request.target and source in known:
                return None, detected
            for code in (source, request.target):
                if code not in known:
                    raise RequestError(400, f"{code} is not supported")
            raise RequestError(400, f"no model here translates from {source} to {request.target}")
        return direction, detected

    async def _translate(
        self, texts: Sequence[str], direction: Direction, request: Request, deadline: float
    ) -> list[tuple[str, list[str]]]:
        """Return each text's translation and alternatives."""
        translator = direction.translator
        cut = html_pieces if request.is_html else plain_pieces
        pieces = await self.in_thread(lambda: [cut(text, translator.separator, direction.source) for text in texts])
        n_best = 1 + request.alternatives
        # The beam must be at least as wide as the n-best list.
        beam = direction.search.beam_size if n_best == 1 else max(direction.search.beam_size, n_best)
        attention = any(one.needs_origins for one in pieces)
        options = replace(direction.search, beam_size=beam, n_best=n_best, scores=n_best > 1, attention=attention)
        sentences = [sentence for one in pieces for sentence in one.sentences]
        if not sentences:
            return [(one.together([], translator.align), []) for one in pieces]
        self._metrics.characters.labels(direction.source, direction.target).inc(sum(map(len, sentences)))
        following = iter(await self.batcher.translate(translator, sentences, options, deadline))
        return await self.in_thread(
            lambda: [_joined(one, [next(following) for _ in one.sentences], n_best, translator) for one in pieces]
        )


def _joined(
    pieces: Pieces, candidates: Sequence[Sequence[Candidate]], n_best: int, translator: Translator
) -> tuple[str, list[str]]:
    """Join the best sentences, the second-best, and so on."""
    ranked = [
        pieces.together([found[min(rank, len(found) - 1)] for found in candidates], translator.align)
        for rank in range(n_best)
    ]
    different = dict.fromkeys(ranked)
    return ranked[0], list(different)[1:]
