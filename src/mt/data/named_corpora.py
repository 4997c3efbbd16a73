"""Corpora by name: OPUS's archives in the cache of mt, sacreBLEU's test sets in its own."""

import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from mt.config.base import RUN_NAME
from mt.console import log
from mt.errors import InputError, MachineError, MtError
from mt.storage import atomic
from mt.storage.download import cache_folder, download, fetch_bytes
from mt.storage.lock import wait_for_lock
from mt.text.archives import file_names, member_lines

_OPUS = "https://opus.nlpl.eu/opusapi/"
_MAX_ANSWER = 2**24  # bytes
_CITATION = "cite Tiedemann (2012) and the corpus, see https://opus.nlpl.eu"


def opus_archive(corpus: str, version: str, languages: tuple[str, str]) -> tuple[Path, str]:
    """Return the moses archive of a corpus, downloaded if it is not in the cache, and its version.

    The answer of OPUS is cached, so that `latest` stays the same version. `MT_OPUS_API` names another server. Raises as
    `download` does, and InputError if OPUS does not have the corpus.
    """
    pair = "-".join(sorted(languages))
    answer = cache_folder() / "opus" / f"{corpus}_{version}_{pair}.json"
    cached = _cached_entry(answer)
    entry = cached or _ask_opus(corpus, version, languages)
    path = answer.with_name(f"{corpus}_{entry['version']}_{pair}.zip")
    new = not path.exists()
    download(entry["url"], path)
    if new and not zipfile.is_zipfile(path):
        path.unlink()
        raise InputError(f"{entry['url']}: not a zip archive", "try again later")
    if not cached:
        for name in (version, entry["version"]):
            atomic.write_json(answer.with_name(f"{corpus}_{name}_{pair}.json"), entry)
        licence = entry.get("license") or _licence(path)
        size = f"{entry.get('alignment_pairs', 0):,} pairs"
        log.info("OPUS %s %s, %s: %s; licence: %s; %s", corpus, entry["version"], pair, size, licence, _CITATION)
    return path, entry["version"]


def _cached_entry(answer: Path) -> dict[str, Any]:
    """Return what OPUS answered before; empty if it was not asked or the file is damaged."""
    try:
        entry = json.loads(answer.read_bytes())
        return entry if entry["url"] and entry["version"] else {}
    except (FileNotFoundError, ValueError, TypeError, LookupError):
        return {}


def _ask_opus(corpus: str, version: str, languages: tuple[str, str]) -> dict[str, Any]:
    source, target = sorted(languages)
    query = {"corpus": corpus, "source": source, "target": target, "preprocessing": "moses", "version": version}
    url = f"{os.environ.get('MT_OPUS_API') or _OPUS}?{urlencode(query)}"
    try:
        corpora = json.loads(fetch_bytes(url, _MAX_ANSWER))["corpora"]
        entries = [entry for entry in corpora if str(entry["url"]).endswith(".zip") and entry["corpus"] == corpus]
        valid = [entry for entry in entries if re.match(RUN_NAME, entry["version"])]  # it becomes part of a file name
    except (ValueError, LookupError, TypeError):
        raise MachineError(f"{url}: not an answer of OPUS", "check MT_OPUS_API, or try again later") from None
    if not valid:
        message = f"OPUS has no corpus {corpus} in {source} and {target}, version {version}"
        raise InputError(message, "names and versions are at https://opus.nlpl.eu; case matters")
    return dict(valid[0])


def _licence(path: Path) -> str:
    """Return the first line of an archive's LICENSE."""
    names = [name for name in file_names(path) if re.search(r"(^|/)LICEN[CS]E", name, re.IGNORECASE)]
    lines = (line.decode("utf-8", "replace").strip() for name in names for line in member_lines(path, name))
    return next(filter(None, lines), "not stated; ask OPUS")[:200]


def sacrebleu_files(name: str, languages: tuple[str, str]) -> tuple[Path, Path]:
    """Return the source and the first reference of a test set of sacreBLEU, downloaded if they are not in its cache.

    Raises as `download` does, InputError if there is no such set in these languages, and MachineError if the
    library cannot prepare it.
    """
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        raise InputError(f"sacreBLEU has no test set {name!r}", f"one of {', '.join(sorted(DATASETS))}")
    dataset: Any = DATASETS[name]
    pair = "-".join(languages)
    if pair not in dataset.langpairs:
        pairs = ", ".join(sorted(dataset.langpairs))
        raise InputError(f"sacreBLEU's {name} is not in {pair}", f"its languages are {pairs}")
    try:
        _prepare_sacrebleu(dataset, pair)
        fields = dataset.fieldnames(pair)
        files = [Path(file) for file in dataset.get_files(pair)]
        return files[fields.index("src")], files[fields.index(min(f for f in fields if f.startswith("ref")))]
    except MtError:
        raise
    except (Exception, SystemExit) as error:
        hint = f"remove {dataset._outdir}, and run the command again"
        raise MachineError(f"sacreBLEU's {name}: cannot be prepared: {error}", hint) from None


def _prepare_sacrebleu(dataset: Any, pair: str) -> None:
    """Download and extract a test set, and write its texts in a pair of languages, unless all that was done before.

    The library takes files that a killed or a concurrent process left half written for complete. So one process at a
    time prepares a set, and a marker file follows each archive that was extracted and each pair that was written.
    """
    from sacrebleu.utils import extract_tarball

    extract: Any = extract_tarball
    folder, raw = Path(dataset._outdir), Path(dataset._rawdir)
    mark = folder / f".{pair}.prepared"
    is_prepared = mark.exists() and all((raw / dataset._get_tarball_filename(url)).exists() for url in dataset.data)
    if is_prepared or (folder.exists() and not os.access(folder, os.W_OK)):  # a shared cache may be read-only
        return
    with wait_for_lock(Path(f"{folder}.lock"), f"{folder}: another process prepares it"):
        for number, url in enumerate(dataset.data):
            file = raw / dataset._get_tarball_filename(url)
            extracted = file.with_name(f"{file.name}.extracted")
            # The library's own download leaves a part under the final name.
            download(url, file, dataset.md5[number] if dataset.md5 else None)
            if not extracted.exists():
                extract(str(file), dataset._rawdir)
                extracted.touch()
        if not mark.exists():
            for text in folder.glob(Path(dataset._get_txt_file_path(pair, "*")).name):
                text.unlink()
            for text in dataset.get_files(pair):
                atomic.sync(Path(text))
            mark.touch()
