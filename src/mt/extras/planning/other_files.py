"""Configuration files of other toolkits: their options, each with its line, and the text they name."""

import re
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from mt.config.loading import read_limited
from mt.config.problems import dotted
from mt.config.yaml_tree import TreePath, YamlTree, decode_text, parse_yaml, plain_scalar
from mt.console import quoted
from mt.errors import InputError
from mt.extras.planning.inspection import language_ending
from mt.extras.planning.other_toolkits import Option, knows, tables
from mt.text.languages import LANGUAGE_NAMES

_KNOWN = "--like reads a YAML file of JoeyNMT, OpenNMT-py or Eole, or a text file with a fairseq-train command"
_MIN_KNOWN = 3  # options by which the file of a toolkit is recognised
_SECTIONS = re.compile(r"(training|model(\.embeddings)?|transforms_configs\.[^.]+)\.")  # Eole's, not OpenNMT-py's
_COMMAND = re.compile(r"\bfairseq(?:-|_cli[/.])(hydra-train|train|preprocess)(?:\.py)?\)?(?=\s|$)")
_OPTION = re.compile("-[a-zA-Z]|--")
_SHELL = re.compile(r"--|\||&&?|;|\d?>+.*|\d>&\d")  # words after which a command's options have ended
_SHORT = {"-s": "--source-lang", "-t": "--target-lang", "-a": "--arch"}


def read_options(path: Path) -> tuple[str, dict[str, Option]]:
    """Read a file of another toolkit, and return the toolkit's name and the options.

    Raises:
        InputError: it cannot be read, is damaged, or of none of the toolkits.
    """
    content, file = read_limited(path), str(path)
    text = decode_text(content, file)
    if any(map(_find_command, text.splitlines())):
        return "fairseq", _command_options(text, file)
    tree = parse_yaml(content, file)
    leaves = dict(_leaves(tree, (), tree.root)) if isinstance(tree.root, dict) else {}
    if "data.source_lang" in leaves:
        raise InputError(f"{file} is a configuration of mt already", f"train with it: mt train --config {quoted(file)}")
    unsectioned = {_SECTIONS.sub("", name, count=1): option for name, option in leaves.items()}
    readings = {**dict.fromkeys(tables()["toolkits"], leaves), "OpenNMT-py or Eole": unsectioned}
    known = {name: sum(knows(name, key) for key in keys) for name, keys in readings.items()}
    name = max(known, key=lambda each: known[each])
    if known[name] < _MIN_KNOWN:
        raise InputError(f"{file}: not a configuration of a toolkit that mt knows", _KNOWN)
    return name, readings[name]


def _leaves(tree: YamlTree, path: TreePath, node: Any) -> Iterator[tuple[str, Option]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(tree, (*path, key), value)
    else:
        yield dotted(path), Option(node, tree.lines[path])


def _command_options(text: str, file: str) -> dict[str, Option]:
    """Return the options of a fairseq-train command, and of the fairseq-preprocess beside it."""
    options: dict[str, Option] = {}
    seen = set()
    for kind, line, words in _commands(text, file):
        if kind == "hydra-train":
            raise InputError(f"{file}:{line}: fairseq-hydra-train has its options in other files", _KNOWN)
        if kind in seen:
            raise InputError(f"{file}:{line}: a second fairseq-{kind} command", "keep one of them in the file")
        seen.add(kind)
        options |= dict(_parse_words(words, file))
    if "train" not in seen:
        raise InputError(f"{file}: no fairseq-train command in it", _KNOWN)
    return options


def _find_command(line: str) -> re.Match[str] | None:
    """Find a fairseq command in a line that is no comment and no key of YAML."""
    return None if re.match(r"\s*(#|(- +)?[\w.]+:\s)", line) else _COMMAND.search(line)


def _commands(text: str, file: str) -> Iterator[tuple[str, int, list[tuple[str, int]]]]:
    """Yield the name of each fairseq command, its line, and its words, each with its line."""
    variables = dict(re.findall(r"^[ \t]*(?:export[ \t]+)?(\w+)=(\S+)[ \t\r]*$", text, re.MULTILINE))
    kind, start, words = "", 0, list[tuple[str, int]]()
    for number, line in enumerate(text.splitlines(), 1):
        if not kind:
            if not (found := _find_command(line)):
                continue
            kind, start, words, line = found[1], number, [], line[found.end() :]
        body = line.rstrip().removesuffix("\\")
        try:
            split = shlex.split(Template(body).safe_substitute(variables), comments=True)
        except ValueError:
            raise InputError(f"{file}:{number}: a quote is opened but never closed") from None
        words += [(word, number) for word in split]
        if body == line.rstrip():
            yield kind, start, words
            kind = ""
    if kind:
        yield kind, start, words


def _parse_words(words: list[tuple[str, int]], file: str) -> Iterator[tuple[str, Option]]:
    end = next((i for i, (word, _) in enumerate(words) if _SHELL.fullmatch(word)), len(words))
    flags = tables()["toolkits"]["fairseq"]["flags"].split()
    remaining = deque(words[:end])
    while remaining:
        word, line = remaining.popleft()
        if not _OPTION.match(word):
            yield "data", Option(word, line)
            continue
        name, equals, value = _SHORT.get(word, word).partition("=")
        has_value = bool(remaining) and not _OPTION.match(remaining[0][0])
        flag = name in flags or (not has_value and not knows("fairseq", name))
        if not (equals or flag):
            if not has_value:
                raise InputError(f"{file}:{line}: {word} has no value", "write one after it")
            value, _ = remaining.popleft()
        try:
            yield name, Option(True if flag and not equals else plain_scalar(value), line)
        except ValueError as error:
            raise InputError(f"{file}:{line}: {word}: {error}") from None


def named_texts(toolkit: str, options: Mapping[str, Option], languages: tuple[Any, Any], file: str) -> Any:
    """Return the languages, None where nothing names them, and the sources of each split that a file names.

    Raises:
        InputError: a corpus has one side only.
    """
    readers: dict[str, Callable[..., Any]] = {"JoeyNMT": _joeynmt_texts, "fairseq": _fairseq_texts}
    readers["OpenNMT-py or Eole"] = _opennmt_texts
    return readers[toolkit]({name: option.value for name, option in options.items()}, languages, options, file)


def _joeynmt_texts(values: Mapping[str, Any], languages: tuple[Any, Any], *_: Any) -> Any:
    sources = {}
    for split, name, hub in (("train", "train", "train"), ("valid", "dev", "validation"), ("test", "test", "test")):
        text, kind = values.get(f"data.{name}"), values.get("data.dataset_type")
        source: dict[str, Any] = {"source": f"{text}.{languages[0]}", "target": f"{text}.{languages[1]}"}
        if kind == "tsv":
            source = {"file": f"{text}.tsv"}
        elif kind == "huggingface":
            source = {"hub": str(text), "split": hub, "config": values.get("data.dataset_cfg.name")}
        if text is not None:
            sources[split] = [source]
    return languages, sources


def _opennmt_texts(
    values: Mapping[str, Any], languages: tuple[Any, Any], options: Mapping[str, Option], file: str
) -> Any:
    sources: dict[str, list[dict[str, Any]]] = {}
    for corpus in dict.fromkeys(name.rpartition(".")[0] for name in options if re.match(r"data\..*\.path_", name)):
        paths = [str(values.get(f"{corpus}.{side}", "")) for side in ("path_src", "path_tgt")]
        if not all(paths):
            line = next(option.line for name, option in options.items() if name.startswith(f"{corpus}."))
            raise InputError(f"{file}:{line}: {corpus} has no path_src and path_tgt", "mt trains on translations")
        source = {"source": paths[0], "target": paths[1]}
        if paths[0].startswith("hf://"):  # hf://OWNER/NAME/COLUMN
            hub, _, column = paths[0].removeprefix("hf://").rpartition("/")
            source = {"hub": hub, "source_column": column, "target_column": paths[1].rpartition("/")[2]}
        sources.setdefault("valid" if corpus == "data.valid" else "train", []).append(source)
        languages = (languages[0] or language_ending(paths[0]), languages[1] or language_ending(paths[1]))
    return languages, sources


def _fairseq_texts(values: Mapping[str, Any], languages: tuple[Any, Any], *_: Any) -> Any:
    if None in languages:
        pairs = re.findall(r"(?<![a-z])([a-z]{2,3})[-_]([a-z]{2,3})(?![a-z])", str(values.get("data")))
        languages = next((pair for pair in reversed(pairs) if set(pair) <= LANGUAGE_NAMES.keys()), languages)
    sources = {}
    for split in ("train", "valid", "test"):
        prefixes = str(values.get(f"--{split}pref", "")).split(",")
        sources[split] = [{"source": f"{p}.{languages[0]}", "target": f"{p}.{languages[1]}"} for p in prefixes if p]
    return languages, sources
