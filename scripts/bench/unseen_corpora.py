"""Builds the two English-Spanish corpora of docs/lab/shapes.md from Debian's packages, on Debian, as root.

    python scripts/bench/unseen_corpora.py FOLDER

Messages: those of some 65 packages, from their catalogues. Verses: the Bible, World English Bible and Reina-Valera
1909. Each gets a folder with train, valid and test, of the last two 1,000 pairs each. Downloads some 300 MB. What comes
out depends on the packages' versions. The packages diatheke, sword-text-web and sword-text-sparv are installed.
"""

import gettext
import random
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = """
abiword-common aisleriot apt aptitude-common audacity-data baobab binutils-common bison bluefish-data brasero-common
claws-mail-i18n coreutils cups-common darktable deluge-common dia-common diffutils dpkg easytag eog
epiphany-browser-data evince-common evolution-common file-roller filezilla-common findutils flex freeciv-data
gcc-12-locales geany-common gedit-common gettext gimp-data gnome-calculator gnome-control-center-data gnome-mines
gnome-terminal-data gnucash-common gnumeric-common gparted-common grep grisbi-common hexchat-common homebank-data
inkscape make mutt nano nautilus-data network-manager parted pidgin-data planner-data policykit-1-gnome quodlibet
rhythmbox-data sed shotwell-common sound-juicer synaptic tar totem-common transmission-common vlc-l10n wget
xfce4-session
""".split()
CATALOGUES = "./usr/share/locale/es/LC_MESSAGES/*.mo"
NOT_SENTENCES = ("timezones", "nations", "gnulib", "runtime", "plugin_", "entities")  # in names of catalogues
BIBLES = {"sword-text-web": "engWEB2015eb", "sword-text-sparv": "spaRV1909eb"}
MESSAGES = 47_000
HELD_OUT = 1000
# diatheke appends it to each verse of the New Testament.
APPENDED = "This Psalm is a genuine one of David, though extra, composed when he fought in single combat with Goliath."

Pair = tuple[str, str]


def main() -> int:
    """Write FOLDER/messages and FOLDER/verses."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    packages = folder / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    _write(folder / "messages", _messages(packages), MESSAGES)
    subprocess.run(["apt-get", "install", "--yes", "--quiet", "diatheke", *BIBLES], check=True)
    english, spanish = map(_verses, BIBLES.values())
    _write(folder / "verses", [(text, spanish[verse]) for verse, text in english.items() if verse in spanish])
    return 0


def _messages(packages: Path) -> list[Pair]:
    for name in PROGRAMS:  # one by one: what a release lacks is left out
        if not list(packages.glob(f"{name}_*.deb")):
            subprocess.run(["apt-get", "download", "--quiet", name], cwd=packages)
    for package in packages.glob("*.deb"):
        unpack = f"dpkg-deb --fsys-tarfile {package.name} | tar --extract --wildcards '{CATALOGUES}'"
        subprocess.run(["sh", "-c", unpack], cwd=packages, stderr=subprocess.DEVNULL)
    found: dict[str, str] = {}
    for path in sorted(packages.glob(CATALOGUES)):
        if not any(word in path.name for word in NOT_SENTENCES):
            found = dict(_catalogue(path)) | found
    return list(found.items())


def _catalogue(path: Path) -> Iterable[Pair]:
    """Yield the messages of one line, without the marks of shortcuts."""
    try:
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    except UnicodeDecodeError:
        return
    for key, target in catalogue.items():
        source = (key[0] if isinstance(key, tuple) else key).split("\x04")[-1]  # without plurals and context
        source, target = (re.sub(r"[_&](?=\w)", "", text).strip() for text in (source, target))
        if re.search("[A-Za-z]{2}", source) and source != target and "\n" not in source + target and len(source) <= 400:
            yield source, target


def _verses(bible: str) -> dict[str, str]:
    command = ["diatheke", "-b", bible, "-f", "plain", "-k", "Gen-Rev"]
    output = subprocess.run(command, check=True, capture_output=True).stdout.decode(errors="replace")
    verses: dict[str, str] = {}
    name = None
    for line in output.splitlines():
        if match := re.match(r"\s*((?:[IVX]+ )?[A-Z][A-Za-z ]+ \d+:\d+): ?(.*)", line):
            name, verses[match[1]] = match[1], match[2]
        elif name and not line.startswith("("):
            verses[name] += f" {line}"
    return {name: re.sub("<[^>]*>", "", text).replace(APPENDED, "") for name, text in verses.items()}


def _write(folder: Path, pairs: list[Pair], limit: int | None = None) -> None:
    pairs = [(" ".join(source.split()), " ".join(target.split())) for source, target in pairs]
    # Verses of too different lengths are not translations of each other.
    pairs = [pair for pair in pairs if all(pair) and (limit or 0.5 < len(pair[0]) / len(pair[1]) < 1.7)]
    random.Random(1).shuffle(pairs)
    pairs = pairs[:limit]
    folder.mkdir(exist_ok=True)
    splits = {"test": pairs[:HELD_OUT], "valid": pairs[HELD_OUT : 2 * HELD_OUT], "train": pairs[2 * HELD_OUT :]}
    for split, part in splits.items():
        for side, code in enumerate(("en", "es")):
            (folder / f"{split}.{code}").write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8")
    words = sum(len(source.split()) for source, _ in pairs) / len(pairs)
    print(f"{folder}: {len(splits['train']):,} pairs to train on, {words:.1f} words of English each", flush=True)


if __name__ == "__main__":
    sys.exit(main())
