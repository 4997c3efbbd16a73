"""Measures how soon a fresh process answers, and what takes the time.

    python scripts/bench/startup.py --model runs/demo
    python scripts/bench/startup.py --model runs/demo --input lines.en --rounds 3

Fresh processes in turn, round after round, and the median of each: Python alone, CTranslate2 alone with the same model
and the same sentence already tokenised, and mt. The time beyond CTranslate2's is mt's own. With a file, its lines are
translated by the command and from Python.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mt.bundle.checks import load_tokenizers
from mt.decoding.settings import TranslationSettings
from mt.errors import MtError
from mt.storage.find_model import find_model
from mt.storage.run_dir import ModelDir

LIBRARY = """\
import json, sys
import ctranslate2
translator = ctranslate2.Translator(sys.argv[1], intra_threads=int(sys.argv[3]))
answer = translator.translate_batch([json.loads(sys.argv[2])], beam_size=int(sys.argv[4]))
print(answer[0].hypotheses[0])
"""

API = """\
import sys
import mt
translator = mt.load(sys.argv[1], one_by_one=len(sys.argv) == 3)
if len(sys.argv) == 3:
    print(translator.translate(sys.argv[2]))
else:
    with open(sys.argv[2], encoding="utf-8") as lines, open(sys.argv[3], "w", encoding="utf-8") as output:
        for translation in translator.stream(line.rstrip("\\n") for line in lines):
            print(translation, file=output)
"""


def main() -> int:
    """Print the table."""
    arguments = _arguments()
    try:
        commands = _commands(find_model(arguments.model, Path("runs")), arguments)
    except MtError as error:
        print(f"startup: {error}", file=sys.stderr)
        return error.exit_code
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(arguments.rounds + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            if number:  # the first round fills the disk's cache
                seconds[name].append(time.perf_counter() - started)
    print("| fresh process | seconds (median) | from - to |\n|---|---|---|")
    for name, times in seconds.items():
        print(f"| {name} | {statistics.median(times):.3f} | {min(times):.3f} - {max(times):.3f} |")

    def overhead(name: str, base: str) -> float:
        return statistics.median(ours - its for ours, its in zip(seconds[name], seconds[base], strict=True))

    translate, help_ = overhead("mt translate", "CTranslate2 alone"), overhead("mt --help", "python -c pass")
    print(f"\nmt translate beyond CTranslate2 alone: {translate:.3f} s; mt --help beyond Python alone: {help_:.3f} s")
    print("\nThe slowest imports of mt translate, each without what it imports in turn:\n")
    print("| module | ms |\n|---|---|")
    for milliseconds, module in _imports(commands["mt translate"])[:10]:
        print(f"| {module} | {milliseconds:.1f} |")
    return 0


def _commands(folder: ModelDir, arguments: argparse.Namespace) -> dict[str, list[str]]:
    settings = TranslationSettings.read(folder.settings)
    tokenizer = load_tokenizers(folder, settings.shared_vocabulary).source
    pieces = json.dumps(tokenizer.tokens(tokenizer.encode(arguments.sentence)))
    library = [str(folder.converted("float32")), pieces, str(arguments.threads), str(settings.search.beam_size)]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import ctranslate2": [sys.executable, "-c", "import ctranslate2"],
        "CTranslate2 alone": [sys.executable, "-c", LIBRARY, *library],
        "mt --help": [sys.executable, "-m", "mt", "--help"],
        "mt translate": [sys.executable, "-m", "mt", "translate", "--model", str(folder.root), arguments.sentence],
        "mt.load and translate": [sys.executable, "-c", API, str(folder.root), arguments.sentence],
    } | ({} if arguments.input is None else _file_commands(folder, arguments.input))


def _file_commands(folder: ModelDir, lines: Path) -> dict[str, list[str]]:
    command = [sys.executable, "-m", "mt", "translate", "--model", str(folder.root), "--input", str(lines)]
    return {
        "mt translate --input": [*command, "--output", "/dev/null"],
        "mt.load and stream": [sys.executable, "-c", API, str(folder.root), str(lines), "/dev/null"],
    }


def _imports(command: list[str]) -> list[tuple[float, str]]:
    """Return each import of a command with its own time in milliseconds, the slowest first."""
    report = subprocess.run([command[0], "-X", "importtime", *command[1:]], capture_output=True, text=True, check=True)
    rows = re.findall(r"import time:\s*(\d+) \|\s*\d+ \|\s*(\S+)", report.stderr)
    return sorted(((int(micros) / 1000, module) for micros, module in rows), reverse=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a run or model folder; default: the newest finished run")
    parser.add_argument("--sentence", default="I love you very much")
    parser.add_argument("--input", type=Path, help="also translate the lines of this file")
    parser.add_argument("--rounds", type=int, default=15, help="rounds that count")
    parser.add_argument("--threads", type=int, default=2, help="of CTranslate2 alone")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
