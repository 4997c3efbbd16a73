"""Puts the Multi30k text where `configs/multi30k_en_de.yaml` looks for it: data/multi30k/{train,val,...}.{en,de}.

    python scripts/fetch_multi30k.py                        # from the Hugging Face hub (bentrevett/multi30k)
    python scripts/fetch_multi30k.py --from ~/multi30k      # from a folder that has the files, or their .gz

The text (Elliott et al. 2016, W16-3210; derived from Flickr30K) is for non-commercial research and education.
"""

import argparse
import sys
from pathlib import Path

from mt.errors import InputError, MtError
from mt.storage import atomic
from mt.text.lines import read_lines

HUB = "bentrevett/multi30k"
# Our file names, as in the repository of the data, and the hub's names of the same splits.
SPLITS = {"train": "train", "val": "validation", "test_2016_flickr": "test"}
LANGUAGES = ("en", "de")


def copy_from(folder: Path, to: Path) -> None:
    """Copy the files, checked line by line, and those of further languages of the data set (fr, cs)."""
    for split in SPLITS:
        found = [path for path in sorted(folder.glob(f"{split}.*")) if path.name.removesuffix(".gz").count(".") == 1]
        languages = {path.name.removesuffix(".gz").rpartition(".")[2] for path in found}
        for language in LANGUAGES:
            if language not in languages:
                raise InputError(f"{folder}: neither {split}.{language} nor {split}.{language}.gz is here")
        for path in found:
            write(to / path.name.removesuffix(".gz"), list(read_lines(path)))


def fetch_from_hub(to: Path) -> None:
    """Load the data set from the hub or its cache."""
    from datasets import load_dataset

    for split, hub_split in SPLITS.items():
        try:
            rows = load_dataset(HUB, split=hub_split)
        except Exception as error:
            raise InputError(
                f"{HUB} cannot be loaded from the Hugging Face hub: {str(error).splitlines()[0]}",
                "check the network, or copy the files with --from FOLDER",
            ) from None
        for language in LANGUAGES:
            write(to / f"{split}.{language}", [" ".join(text.split("\n")) for text in rows[language]])


def write(path: Path, lines: list[str]) -> None:
    atomic.write_text(path, "".join(line + "\n" for line in lines))
    print(f"{path}: {len(lines)} lines")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path, help="copy from this folder instead of the hub")
    parser.add_argument("--to", type=Path, default=Path("data/multi30k"), help="where to write (default: %(default)s)")
    options = parser.parse_args()
    try:
        if options.folder:
            copy_from(options.folder, options.to)
        else:
            fetch_from_hub(options.to)
    except MtError as error:
        print(f"fetch_multi30k: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
