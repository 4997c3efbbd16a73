"""Write the text that the package ships: `python -m phrasebook` in the folder `scripts`."""

import lzma
from pathlib import Path

from phrasebook.corpus import table

SHIPPED = Path(__file__).parents[2] / "src" / "mt" / "data" / "phrasebook.tsv.xz"

if __name__ == "__main__":
    SHIPPED.write_bytes(lzma.compress(table().encode()))
