"""`mt init --like`: a configuration from one of another toolkit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mt.config import Config, parse_config
from mt.config.base import Section
from mt.config.problems import SECTIONS, dotted, validate
from mt.errors import InputError
from mt.extras.planning.other_files import named_texts, read_options
from mt.extras.planning.other_toolkits import Conversion, convert
from mt.extras.planning.recipe import Choice, config_text

_RAW = "Text is raw here: not tokenized, not split into subwords. The tokenizer is trained on it."
_GIVEN = "as given"
_NO_LIMIT = 1_000_000  # steps of a training that only max_epochs limits


def convert_config(path: Path, given: Mapping[str, Any]) -> tuple[str, str, str]:
    """Convert another toolkit's file.

    Args:
        path: the file.
        given: what the user has decided, by keys of the configuration.

    Returns:
        the name of the run, the text of the configuration, and a summary for the terminal.

    Raises:
        InputError: the file cannot be converted; the message names it with the line.
    """
    file = str(path)
    toolkit, options = read_options(path)
    conversion = convert(toolkit, options, file)
    converted = sum(line > 0 for _, line in conversion.origins.values())
    values = {**given, **conversion.values}
    languages = values.get("data.source_lang"), values.get("data.target_lang")
    _add_texts(conversion, file, named_texts(toolkit, options, languages, file), given)
    _add_dependent_values(conversion)
    sections = _sections(conversion)
    _require_valid(sections, conversion.origins, file)
    lists: list[str] = []
    for title, lines in (("Differs in meaning:", conversion.differing), ("Without a counterpart:", conversion.missing)):
        lists += [title, *(f"  {line}" for line in lines)] if lines else []
    origin = f"{file}, of {toolkit}"
    text = config_text(sections, [f"Converted by `mt init` from {origin}.", _RAW, *lists])
    parse_config(text, "the text that mt init has written")
    summary = "\n".join([f"{origin}: {converted} values are taken from it", _RAW, *lists])
    return str(conversion.values["name"]), text, summary


def _add_texts(conversion: Conversion, file: str, named: Any, given: Mapping[str, Any]) -> None:
    """Add languages, texts and the name: those given, else those in the file."""
    languages, texts = named
    values, origins = conversion.values, conversion.origins
    for key, language in zip(("data.source_lang", "data.target_lang"), languages, strict=True):
        values[key] = given.get(key) or language
        if values[key] is None:
            option = f"--{key.removeprefix('data.').replace('_', '-')}"
            raise InputError(f"{option} is missing, and {file} does not name the language", f"add {option} CODE")
    pair = values["data.source_lang"], values["data.target_lang"]
    for split in ("train", "valid", "test"):
        sources = given.get(f"data.{split}") or (None if "data.train" in given else texts.get(split))
        if sources:
            values[f"data.{split}"] = sources[0] if len(sources) == 1 else sources
    if "data.train" not in values:
        values["data.train"] = {"source": f"train.{pair[0]}", "target": f"train.{pair[1]}"}
        origins["data.train"] = "your text: the file does not name it", 0
    values["name"] = values.get("name") or "-".join(map(str, pair))
    values |= {key: value for key, value in given.items() if not key.startswith("data.")}
    origins |= dict.fromkeys(given, (_GIVEN, 0))


def _add_dependent_values(conversion: Conversion) -> None:
    """Set keys of ours that depend on several values."""
    values, origins = conversion.values, conversion.origins
    if values["training.schedule"] not in ("noam", "inverse_sqrt"):
        values.setdefault("training.warmup_steps", 0)
    if values.get("training.weight_decay") and values.get("training.optimizer", "adam") == "adam":
        values["training.optimizer"] = "adamw"
        origins["training.optimizer"] = "weight decay is AdamW's here", 0
    if "training.max_epochs" in values and "training.max_steps" not in values:
        values["training.max_steps"] = _NO_LIMIT
        origins["training.max_steps"] = "no limit there", 0
    tokens, length = values.get("training.max_tokens", 4096), values.get("data.max_length", 256)
    if isinstance(tokens, int) and isinstance(length, int) and tokens < length:
        values["data.max_length"] = tokens
        origins["data.max_length"] = "a batch holds no longer sentence", 0


def _require_valid(sections: Mapping[str, list[Choice]], origins: Mapping[str, tuple[str, int]], file: str) -> None:
    tree: dict[str, Any] = {name: {each.key: each.value for each in choices} for name, choices in sections.items()}
    _, problems = validate(tree.pop("") | tree)
    for problem in problems:
        name, line = origins.get(dotted(problem.path[:2]), ("", 0))
        place = f"{file}:{line}: {name}" if line else f"{file}: {dotted(problem.path)}"
        if name == _GIVEN:
            place = f"--{problem.path[-1]}".replace("_", "-")
        raise InputError(f"{place}: {problem.message}", "change it there, or write the configuration by hand")


def _sections(conversion: Conversion) -> dict[str, list[Choice]]:
    """Return the values in the order of the configuration, each with the name of its option."""
    sections: dict[str, list[Choice]] = {}
    models: dict[str, type[Section]] = {"": Config, **SECTIONS}
    values, origins = conversion.values, conversion.origins
    for section, model in models.items():
        paths = [(key, f"{section}.{key}".removeprefix(".")) for key in model.model_fields]
        sections[section] = [Choice(key, values[p], origins.get(p, ("",))[0]) for key, p in paths if p in values]
    return sections
