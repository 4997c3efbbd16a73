"""Inspection of a corpus for `mt init`: the format of its files, and the places of the two languages."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, islice
from pathlib import Path

from mt.config import TableFile
from mt.config.sources import BILINGUAL, file_kind
from mt.console import log
from mt.data.bilingual import read_units
from mt.data.named_corpora import opus_archive
from mt.data.paired_texts import names_in, text_pairs
from mt.data.tables import read_cells, table_rows
from mt.errors import InputError, first_line
from mt.extras.planning.init_options import Decide, Given, Source
from mt.extras.planning.table_style import NAMED_ROLES, has_header, language_code, table_style
from mt.text.archives import ARCHIVES
from mt.text.compressed import COMPRESSED
from mt.text.languages import base_language
from mt.text.lines import count_lines, raise_issue, refuse_pipe

_SAMPLE = 1000  # rows or units
_COLUMNS = "--columns SOURCE:TARGET"
_LANGUAGES = "--source-lang and --target-lang"
# File name endings that look like language codes; some are, as tok and src, but are rarely meant so.
_NO_LANGUAGE = frozenset("bpe csv hyp ids lc out raw ref sp spm src tc tgt tok trg tsv txt xml zip".split())
_ROLES = {  # words in the names of files, maybe followed by a number
    "valid": r"(^|[._/-])(val(id(ation)?)?|dev(el(opment)?)?)(set)?(?![a-z])",
    "test": r"(^|[._/-])(dev)?test(s|set|ing)?(?![a-z])",
}
_PURPOSES = {"train": "training", "valid": "validation", "test": "testing"}


@dataclass(frozen=True)
class Found:
    """The sources for training, their languages where these are known, and sources for `valid` and `test`."""

    sources: list[Source]
    languages: tuple[str | None, str | None]
    held_out: dict[str, Source] = field(default_factory=dict)


def inspect(names: Sequence[str], given: Given, decide: Decide) -> Found:
    """Find out how two texts, or one file or folder with both languages, are to be read, and log it.

    Raises:
        InputError: missing, damaged, of different length, of an unknown kind, or `decide` refuses.
    """
    for each in names:
        refuse_pipe(Path(each))
    if len(names) == 2:
        return _two_texts(names[0], names[1], given)
    name, path = names[0], Path(names[0])
    kind = "folder" if path.is_dir() else file_kind(name)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not kind:
        hint = "name it, too, or one file of both: .tsv, .csv, .xlsx, .tmx, .zip, ... or a folder"
        raise InputError(f"{path}: the file of its translation is missing", hint)
    if kind in ("folder", *ARCHIVES):
        return _paired_texts(name, "folder" if kind == "folder" else "file", given, decide)
    return (_units if kind in BILINGUAL else _table)(name, kind, given, decide)


def inspect_opus(corpus: str, languages: tuple[str, str], given: Given) -> Found:
    """Download a corpus of OPUS, and name its version."""
    wanted = given.source_lang or languages[0], given.target_lang or languages[1]
    if languages != wanted:  # the configuration names the languages once
        raise _other_languages(f"--opus {corpus} {' '.join(languages)}:", languages, wanted)
    return Found([{"opus": corpus, "version": opus_archive(corpus, "latest", languages)[1]}], languages)


def _two_texts(source: str, target: str, given: Given) -> Found:
    for name in (source, target):
        if file_kind(name) or Path(name).is_dir():
            raise InputError(f"{name}: has both languages by its name", "give each such file or folder alone")
    lines = [count_lines(Path(name)) for name in (source, target)]
    if lines[0] != lines[1]:
        hint = "line n of one must be the translation of line n of the other; `mt data align` pairs them"
        raise InputError(f"{source} has {lines[0]} lines but {target} has {lines[1]}", hint)
    languages = language_ending(source), language_ending(target)
    if languages[0] == languages[1] and source != target:  # a.dat and b.dat
        languages = None, None
    _refuse_contradiction(f"{source} {target}: by their names", languages, given)
    return Found([{"source": source, "target": target}], languages)


def _refuse_contradiction(place: str, named: tuple[str | None, str | None], given: Given) -> None:
    """Refuse texts named after the wanted languages in the opposite order, or after other known languages."""
    source, target = named
    if source is None or target is None or base_language(source) == base_language(target):
        return
    bases, wanted = (base_language(source), base_language(target)), (given.source_lang, given.target_lang)
    wanted_bases = [code and base_language(code) for code in wanted]
    differs = any(code not in (None, base) for code, base in zip(wanted_bases, bases, strict=True))
    is_crossed = bases[0] == wanted_bases[1] or bases[1] == wanted_bases[0]
    if differs and (is_crossed or all(map(language_code, bases))):
        raise _other_languages(place, (source, target), wanted)


def _other_languages(place: str, named: tuple[str, str], wanted: tuple[str | None, str | None]) -> InputError:
    model = " ".join(f"{side} {code}" for side, code in zip(("from", "into"), wanted, strict=True) if code)
    message = f"{place} from {named[0]} into {named[1]}, but the model translates {model}"
    return InputError(message, "swap them, or change --source-lang and --target-lang")


def language_ending(name: str) -> str | None:
    """Return the language code that a file name ends in: en for corpus.en and corpus.en.gz."""
    path = Path(name)
    ending = (path.with_suffix("") if path.suffix.lower() in COMPRESSED else path).suffix.removeprefix(".")
    return ending if re.fullmatch("[a-z]{2,3}([-_][A-Za-z0-9]+)?", ending) and ending not in _NO_LANGUAGE else None


def _choose(names: Sequence[str], given: Given, decide: Decide, place: str, option: str) -> list[str]:
    """Choose the source and the target among names of columns or languages: by code, else the only two, else ask."""
    wanted = (given.source_lang, given.target_lang)
    coded = {name: base_language(language_code(name) or name) for name in names}
    chosen = [next((name for name in names if want and coded[name] == base_language(want)), None) for want in wanted]
    for side in (0, 1):
        if chosen[side] is None:
            others = [name for name in names if name not in chosen]
            by_role = [name for name in others if name.lower() in NAMED_ROLES[side]]
            likely, needed = [name for name in others if language_code(name)], chosen.count(None)
            known = by_role or next((group for group in (likely, others) if len(group) == needed), [])
            text = f"{place}: {', '.join(names)[:300]}: which is the {('source', 'target')[side]}?"
            chosen[side] = known[0] if known else decide(text, option, others)
    return [name for name in chosen if name is not None]


def _units(name: str, kind: str, given: Given, decide: Decide) -> Found:
    units = islice(read_units(Path(name), kind), _SAMPLE)
    codes = list(dict.fromkeys(language for _, texts in units for language, _ in texts))
    bases = list(dict.fromkeys(codes if len(codes) == 2 else map(base_language, codes)))
    if len(bases) < 2:
        raise InputError(f"{name}: no unit in two languages", "check its kind, and whether it is translated")
    chosen = _choose(bases, given, decide, name, _LANGUAGES)
    known = [None if each in ("source", "target") else base_language(each) for each in chosen]
    languages = given.source_lang or known[0], given.target_lang or known[1]
    log.info("%s: %s and %s", name, *chosen)
    return Found([{"file": name}], languages)


def _table(name: str, kind: str, given: Given, decide: Decide) -> Found:
    source: Source = {"file": name}
    if kind in (".csv", ".tsv"):
        source |= table_style(name, kind, given, decide)
    header = True
    if kind in (".jsonl", ".parquet"):
        names = _keys(Path(name), kind)
    else:
        rows = read_cells(Path(name), TableFile.model_construct(**source), raise_issue)
        names = [str(cell) for cell in next((cells for _, cells in rows), [])]
        if len(names) < 2:
            hint = "name the file of the translation, too, or the character between the columns with --delimiter"
            raise InputError(f"{name}: one column, but a source and a target are needed", hint)
        header = has_header(names, name, given, decide)
        names = names if header else [str(number) for number, _ in enumerate(names, 1)]
        source |= {} if header else {"header": False}
    columns = _given_columns(given.columns, names, name) or _choose(names, given, decide, name, _COLUMNS)
    codes = language_code(columns[0]), language_code(columns[1])
    if given.columns is None:
        _refuse_contradiction(f"{name}: by the names of its columns", codes, given)
    languages = given.source_lang or codes[0], given.target_lang or codes[1]
    if tuple(columns) != (languages if header else ("1", "2")):
        source |= {"source_column": columns[0], "target_column": columns[1]}
    shown = ", ".join(f"{key} {json.dumps(value)}" for key, value in source.items() if key in ("delimiter", "quoting"))
    log.info("%s: %scolumns %s and %s%s", name, shown and f"{shown}, ", *columns, "" if header else ", no header")
    return Found([source], languages)


def _keys(path: Path, kind: str) -> list[str]:
    """Return the columns of JSON lines or of Parquet, or the languages in `translation`."""
    if kind == ".parquet":
        from pyarrow import ArrowException, parquet, types

        try:
            fields = {each.name: each.type for each in parquet.read_schema(path)}
        except (ArrowException, OSError) as error:
            raise InputError(f"{path}: cannot be read as Parquet: {first_line(error)}") from None
        nested = fields.get("translation")
        return [each.name for each in nested] if nested is not None and types.is_struct(nested) else list(fields)
    rows = table_rows(path, TableFile.model_construct(file=str(path)), ("", ""), raise_issue)
    row = next((row for _, row in rows), None)
    if row is None:
        raise InputError(f"{path}: no row in it", "check the file")
    return list(row["translation"] if isinstance(row.get("translation"), dict) else row)


def _given_columns(columns: str | None, names: list[str], place: str) -> list[str] | None:
    if columns is None:
        return None
    numbered = {str(number): name for number, name in enumerate(names, 1)}
    chosen = [part if part in names else numbered.get(part) for part in columns.split(":")]
    if len(chosen) != 2 or None in chosen or chosen[0] == chosen[1]:
        raise InputError(f"--columns {columns}: not two columns of {place}", f"it has {', '.join(names)[:300]}")
    return [name for name in chosen if name is not None]


def _paired_texts(name: str, key: str, given: Given, decide: Decide) -> Found:
    names = names_in(Path(name))
    languages = _text_languages(names, given, decide, name)
    pairs = text_pairs(names, languages)
    role = {stem: next((r for r, mark in _ROLES.items() if re.search(mark, stem)), "train") for stem in pairs}
    stems, purpose = [stem for stem in pairs if role[stem] == given.split], _PURPOSES[given.split]
    if not stems or len(stems) == len(pairs):
        log.info("%s: %s, %s-%s, for %s", name, ", ".join(pairs), *languages, purpose)
        return Found([{key: name}], languages)
    others = {stem: split for stem, split in role.items() if split != "train" and given.split == "train"}
    held_out = {split: {key: name, "stem": stem} for stem, split in reversed(others.items())}  # the first of each
    uses = {stem: f"as --{split}" if held_out[split]["stem"] == stem else "not used" for stem, split in others.items()}
    shown = "".join(f"; {stem} {use}" for stem, use in uses.items())
    log.info("%s: %s, %s-%s, for %s%s", name, ", ".join(stems), *languages, purpose, shown)
    return Found([{key: name, "stem": stem} for stem in stems], languages, held_out)


def _text_languages(names: list[str], given: Given, decide: Decide, place: str) -> tuple[str, str]:
    """Find the codes of two languages in the names of texts that differ in nothing else."""
    tokens = dict.fromkeys(token for name in names for token in re.split(r"[._/-]", name))
    codes = [code for code in tokens if language_code(code) == code.lower()]
    codes = list(dict.fromkeys([*filter(None, (given.source_lang, given.target_lang)), *codes]))
    paired = [pair for pair in combinations(codes, 2) if text_pairs(names, pair)]
    known = list(dict.fromkeys(chain.from_iterable(paired)))
    if not paired:
        hint = f"it holds {', '.join(names[:10]) or 'nothing'}; texts are paired by codes, as train.en and train.de"
        raise InputError(f"{place}: no two texts whose names differ in a language's code", hint)
    source, target = _choose(known, given, decide, place, _LANGUAGES)
    return source, target
