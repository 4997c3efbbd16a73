"""Plans: the steps of a pipeline in an order in which they can run, each with its command."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from mt.bundle.load_translator import read_config
from mt.config import Config, load_config
from mt.config.loading import as_yaml, parse_tree, read_limited
from mt.config.problems import Problem
from mt.config.suggestions import did_you_mean, similar
from mt.config.yaml_tree import TreePath
from mt.errors import InputError
from mt.extras.pipelines.loading import Pipeline, as_place, places
from mt.extras.pipelines.schema import COMMANDS, Export, OnCorpus, Place, StepSettings, Train
from mt.storage.find_model import find_model
from mt.storage.run_dir import RunDir
from mt.system.cpus import usable_cores

MODELS = ("model", "forward", "backward")  # keys of models, whose paths are not relative to `root`
_NO_OPTIONS = ("config", "set", "format", "output")  # keys that are added to a command by rules of their own
TEXT_KINDS = ("distill", "backtranslate")  # kinds of steps whose output is one file
_FORCED = (*TEXT_KINDS, "eval", "export")  # kinds whose commands replace an earlier output only with --force
# The kind of step that a key must name; other keys name steps that write text
_PRODUCERS = {**dict.fromkeys((*MODELS, "init_from", "distill_from"), "train"), "scores": "score"}


@dataclass(frozen=True)
class Step:
    """A step, with its command, inputs and output."""

    name: str
    kind: str
    settings: StepSettings
    words: tuple[str, ...]  # the arguments of `mt`
    config_words: tuple[str, ...]  # the part of them, after the command, that gives its configuration
    needs: tuple[str, ...]  # names of the steps whose output it reads
    places: Mapping[str, Sequence[Path]]  # the paths of its files and models, by key of its settings
    reads: tuple[Path, ...]  # files and models that it reads, besides the texts of `config`
    output: Path  # the file or folder that it writes
    config: Config | None  # of a training or of the corpus that it works on

    def models(self, key: str = "model") -> Sequence[Path]:
        """Return the models that a key names."""
        return self.places.get(key, ())

    def text(self, key: str) -> Path | None:
        """Return the text that a key names."""
        return next(iter(self.places.get(key, ())), None)

    def inputs(self) -> dict[Path, str | None]:
        """Return all files and models that it reads, with the keys that name them."""
        named = [*self.places.items(), *((f"data.{split}", paths) for split, _, paths in self.sources())]
        return dict.fromkeys(self.reads) | {path: key for key, paths in named for path in paths}

    def sources(self) -> Iterator[tuple[str, Any, list[Path]]]:
        """Yield split, source and paths of each source in files or folders; aligned texts have two paths."""
        if self.config is None:
            return
        data = self.config.data
        for split in ("train", "valid", "test"):
            sources = getattr(data, split)
            for source in sources if isinstance(sources, tuple) else ():
                if source.files:
                    yield split, source, [Path(data.root, name) for name in source.files.values()]


@dataclass(frozen=True)
class Plan:
    """A pipeline with the commands of its steps; `folder` has their outputs."""

    pipeline: Pipeline
    folder: Path
    steps: dict[str, Step]

    @property
    def records(self) -> Path:
        return RunDir(self.folder).pipeline

    def writer(self, path: Path) -> Step | None:
        """Return the step that writes a file or folder."""
        real = Path(os.path.realpath(path))
        return next((s for s in self.steps.values() if real.is_relative_to(os.path.realpath(s.output))), None)

    def config_of(self, model: Path) -> Config:
        """Return the configuration of a model, which a step may have yet to train."""
        return self.planned_config(model) or read_config(find_model(model, self.folder))

    def planned_config(self, model: Path) -> Config | None:
        """Return the configuration of the step that trains a model; None for other models."""
        writer = self.writer(model)
        return writer.config if writer else None

    def problem(self, step: Step, message: str, key: str | None) -> Problem:
        """Return a problem with a step's key, or with a dotted one of its configuration."""
        if key and "." in key:
            return Problem(self.pipeline.set_path(step.name, key), message)
        return Problem(("steps", step.name, step.kind, *filter(None, [key])), message)

    @cached_property
    def upstream(self) -> dict[str, set[str]]:
        """The names of all steps that each step depends on."""
        upstream = dict[str, set[str]]()
        for name, step in self.steps.items():  # each after those that it needs
            upstream[name] = set(step.needs).union(*map(upstream.__getitem__, step.needs))
        return upstream

    def cores(self, name: str, jobs: int) -> int:
        """Return the cores of a step: its share of all, or of OMP_NUM_THREADS, if `jobs` independent steps run at once.

        Finished steps count, too: with as many threads as before, a step writes the same bytes after a resume.
        """
        downstream = sum(name in self.upstream[other] for other in self.steps)
        at_once = min(jobs, len(self.steps) - len(self.upstream[name]) - downstream)
        threads = os.environ.get("OMP_NUM_THREADS", "")
        cores = int(threads) if threads.isdecimal() and int(threads) else usable_cores()
        return max(1, cores // at_once)


def make_plan(pipeline: Pipeline, runs: Path) -> Plan:
    """Resolve the references between steps.

    Raises:
        InputError: a wrong reference, a cycle, two outputs in one place, or an invalid configuration.
    """
    folder = runs / pipeline.file.name
    if RunDir(folder).config.is_file():
        raise InputError(f"{pipeline.origin('name')}: {folder} is the run of a training", "choose another name")
    named = {name: list(_all_places(pipeline, name)) for name in pipeline.steps}
    pipeline.refuse(list(_reference_problems(pipeline, chain.from_iterable(named.values()))))
    needs = {name: tuple(dict.fromkeys(p.step for _, p in named[name] if p.step)) for name in named}
    order = _order(pipeline, needs)
    outputs = {name: _output(pipeline, folder, name) for name in order}
    pipeline.refuse(list(_output_problems(pipeline, outputs)))
    return Plan(pipeline, folder, {name: _make_step(pipeline, folder, outputs, name, needs[name]) for name in order})


def _all_places(pipeline: Pipeline, name: str) -> Iterator[tuple[TreePath, Place]]:
    """Yield the places that a step names, those in the values of its configuration included."""
    kind, settings = pipeline.steps[name]
    for path, place in places(settings):
        yield ("steps", name, kind, *path), place
    for path, value in pipeline.merged_set(name).values():
        yield from _places_in(value, path)


def _places_in(value: Any, path: TreePath) -> Iterator[tuple[TreePath, Place]]:
    if place := as_place(value):
        yield path, place
    elif isinstance(value, Mapping | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _places_in(inner, (*path, key))


def _reference_problems(pipeline: Pipeline, named: Iterable[tuple[TreePath, Place]]) -> Iterator[Problem]:
    for path, place in named:
        if place.step is None:
            continue
        if place.step not in pipeline.steps:
            hint = did_you_mean(similar(place.step, pipeline.steps)) or f"there are {', '.join(pipeline.steps)}"
            yield Problem(path, f"there is no step {place.step}; {hint}")
            continue
        kind = pipeline.steps[place.step][0]
        key = next((str(part) for part in reversed(path) if not isinstance(part, int)), "")
        wanted = _PRODUCERS.get(key.rpartition(".")[2])
        if wanted and (kind != wanted or place.file):
            fault = f"needs a step of kind {wanted}, but {place.step} is of kind {kind}"
            yield Problem(path, fault if kind != wanted else "leave out `file`; the step alone names its output")
        elif place.file and (place.file.startswith("/") or "\0" in place.file or ".." in place.file.split("/")):
            yield Problem(path, f"{place.file} is not in the step's folder")
        elif not wanted and kind in TEXT_KINDS and place.file:
            yield Problem(path, f"{place.step} writes one file; leave out `file`")
        elif not wanted and kind not in TEXT_KINDS and not place.file:
            yield Problem(path, f"{place.step} writes a folder; add `file` to name the text in it")


def _order(pipeline: Pipeline, needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the steps in the order of the file, but each after those that it needs."""
    order: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = " needs ".join((*path[path.index(name) :], name))
            pipeline.refuse([Problem(("steps", name), f"the steps wait for one another: {cycle}")])
        for other in needs[name] if name not in order else ():
            visit(other, (*path, name))
        order[name] = None

    for name in needs:
        visit(name, ())
    return list(order)


def _output(pipeline: Pipeline, folder: Path, name: str) -> Path:
    kind, settings = pipeline.steps[name]
    if (given := getattr(settings, "output", None)) is not None:
        return Path("" if isinstance(settings, Export) else pipeline.file.root or "", given)
    return folder / name / "translations.txt" if kind in TEXT_KINDS else folder / name


def _output_problems(pipeline: Pipeline, outputs: Mapping[str, Path]) -> Iterator[Problem]:
    """Report outputs that are the same or lie in one another."""
    # On some systems A and a are one file.
    real = {name: Path(os.path.realpath(output).lower()) for name, output in outputs.items()}
    for writer, name in combinations(outputs, 2):
        if real[name].is_relative_to(real[writer]) or real[writer].is_relative_to(real[name]):
            message = f"writes to {outputs[name]}, and so does {writer}"
            given = next((n for n in (name, writer) if getattr(pipeline.steps[n][1], "output", None)), name)
            yield Problem(("steps", given, pipeline.steps[given][0]), message)


def _make_step(pipeline: Pipeline, folder: Path, outputs: dict[str, Path], name: str, needs: tuple[str, ...]) -> Step:
    kind, settings = pipeline.steps[name]

    def path_of(place: Place, is_model: bool) -> Path:
        if place.step is not None:
            return outputs[place.step] / (place.file or "")
        return Path(("" if is_model else pipeline.file.root) or "", place.file or "")

    words, reads = [*COMMANDS[kind], *([settings.format] if isinstance(settings, Export) else [])], []
    config, config_words, paths = None, tuple[str, ...](), dict[str, list[Path]]()
    for (name_of_key, *_), place in places(settings):
        paths.setdefault(str(name_of_key), []).append(path_of(place, name_of_key in MODELS))
    if isinstance(settings, OnCorpus):
        path = pipeline.path.parent / settings.config
        if not path.is_file():
            pipeline.refuse([Problem(("steps", name, kind, "config"), f"there is no file {path}")])
        overrides = _overrides(pipeline, name, settings, path, path_of)
        config = _load(pipeline, name, kind, path, overrides)
        config_words = ("--config", str(path), *(word for each in overrides for word in ("--set", each)))
        words += config_words
        learns_from = (config.training.init_from, *config.training.distill_from) if kind == "train" else ()
        reads += [Path(each) for each in (*learns_from, *(config.tokenizer.given or ())) if each]
    for key, field in type(settings).model_fields.items():
        value = getattr(settings, key)
        if key in _NO_OPTIONS or value == field.get_default(call_default_factory=True):
            continue
        option = f"--{(field.alias or key).replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
            continue
        values: Sequence[Any] = paths.get(key) or (value if isinstance(value, tuple) else (value,))
        values = [",".join(value)] if key == "metrics" else values
        words += [word for each in values for word in (option, str(each))]
    reads += chain.from_iterable(paths.values())
    words += [] if kind == "train" else ["--output", str(outputs[name]), *(["--force"] if kind in _FORCED else [])]
    words += ["--runs", str(folder)]
    return Step(name, kind, settings, tuple(words), config_words, needs, paths, tuple(reads), outputs[name], config)


def _overrides(pipeline: Pipeline, name: str, settings: StepSettings, path: Path, path_of: Any) -> list[str]:
    """Return the `--set` arguments of a step; paths of texts in them are relative to its data.root."""
    values = {key: value for key, (_, value) in pipeline.merged_set(name).items()}
    if pipeline.file.root is not None:
        values = {"data.root": pipeline.file.root} | values
    root = values.get("data.root")
    if root is None:
        with suppress(InputError):  # `_load` reports it
            data = parse_tree(read_limited(path), str(path), (), "")[0].get("data")
            root = data.get("root") if isinstance(data, dict) else None
    real_root = os.path.realpath(str(root or "."))

    def resolved(value: Any, is_text: bool) -> Any:
        if place := as_place(value):
            path = path_of(place, False)
            # Symbolic links are resolved first: `..` out of one leads elsewhere.
            is_relative = is_text and not path.is_absolute()
            return os.path.relpath(os.path.realpath(path), real_root) if is_relative else str(path)
        if isinstance(value, Mapping):
            return {key: resolved(inner, is_text) for key, inner in value.items()}
        return [resolved(inner, is_text) for inner in value] if isinstance(value, list) else value

    # Cleaning reads the tokenizer of the run of that name, so the name must not be that of another step.
    values = {"name": name} | values if isinstance(settings, Train) else values | {"name": name}
    return [f"{key}={as_yaml(resolved(value, key.startswith('data.')))}" for key, value in values.items()]


def _load(pipeline: Pipeline, name: str, kind: str, path: Path, overrides: list[str]) -> Config:
    """Load a step's configuration; problems with its overrides are reported at their place in the pipeline."""
    try:
        config = load_config(path, overrides)
    except InputError as error:
        message = error.message
        for override in overrides:
            key = override.partition("=")[0]
            message = message.replace(f"--set {override}", pipeline.origin(*pipeline.set_path(name, key)))
        place = pipeline.origin("steps", name, kind, "config")
        raise InputError(f"{place}: step {name}: {message}", error.hint) from None
    if kind == "train" and config.name != name:
        message = f"the run of a step is named after it, {name}"
        pipeline.refuse([Problem(("steps", name, kind, "set", "name"), message)])
    return config
