"""Options that contradict each other or are out of bounds: one sentence and exit code 2."""

from pathlib import Path

import pytest

from command import mt

TRANSLATE = ["translate", "a b"]
EVAL = ["eval"]
DISTILL = ["distill", "--input", "test.en", "--output", "never"]
BACKTRANSLATE = ["backtranslate", "--input", "test.xx", "--output", "never"]
ALL = [TRANSLATE, EVAL, DISTILL, BACKTRANSLATE]
WITH_GREEDY = [TRANSLATE, DISTILL, BACKTRANSLATE]
WITH_MBR = [TRANSLATE, EVAL]

CASES = [
    *((command, "--beam 4 --sample", "--beam and --sample contradict each other") for command in ALL),
    *((command, "--greedy --sample", "--greedy and --sample contradict each other") for command in WITH_GREEDY),
    *((command, "--greedy --beam 4", "--greedy and --beam contradict each other") for command in WITH_GREEDY),
    *((command, "--seed 3", "--seed belongs to --sample") for command in ALL),
    *((command, "--top-k 3", "--top-k belongs to --sample") for command in ALL),
    *((command, "--top-p 0.5", "--top-p belongs to --sample") for command in ALL),
    *((command, "--temperature 0.5", "--temperature belongs to --sample") for command in ALL),
    *((command, "--utility bleu", "--utility belongs to --mbr") for command in WITH_MBR),
    *((command, "--mbr 5 --beam 4", "--mbr 5 is more than the beam of 4 can hold") for command in WITH_MBR),
    (TRANSLATE, "--greedy --mbr 4", "--greedy and --mbr contradict each other"),
    (TRANSLATE, "--mbr 4 --n-best 5", "--n-best 5 is more than the 4 candidates of --mbr"),
    (TRANSLATE, "--sample --mbr 4 --n-best 5", "--n-best 5 is more than the 4 candidates of --mbr"),
    (TRANSLATE, "--beam 2 --n-best 3", "--n-best 3 is more than the beam of 2 can hold"),
    (TRANSLATE, "--n-best 3", "--n-best 3 is more than the beam of 2 can hold"),  # the model's own beam
    (TRANSLATE, "--greedy --n-best 2", "--greedy and --n-best contradict each other"),
    *((TRANSLATE, f"--sample --temperature {number}", "--temperature") for number in ("0", "-1", "nan", "inf", "1e9")),
    *((TRANSLATE, f"--sample --top-p {number}", "--top-p") for number in ("0", "-0.1", "1.1", "nan")),
    (EVAL, "--sample --temperature 0", "--temperature 0.0 is not between"),
    (EVAL, "--source test.en", "source and reference go together"),
    (DISTILL, "--sample --top-p 2", "--top-p 2.0 is not a probability"),
]
USAGE = [
    *((command, f"--sample --{option}") for command in ALL for option in ("top-k 0", "seed -1", "temperature x")),
    *((command, option) for command in WITH_MBR for option in ("--mbr 1", "--mbr 2 --utility ter", "--beam 0")),
    (EVAL, "--greedy"),
    (EVAL, "--n-best 2"),
    (DISTILL, "--mbr 4"),
    (DISTILL, "--n-best 2"),
    (DISTILL, "--tag x"),
    (["compare", "a", "b"], "--samples 19"),
]
TUNING_EXCLUDES = ("--sample", "--mbr 3", "--length-penalty 1", "--length-penalty 0", "--output never")


@pytest.mark.parametrize(("command", "options", "sentence"), CASES, ids=str)
def test_a_contradiction_is_one_sentence(trained: Path, command: list[str], options: str, sentence: str) -> None:
    done = mt(*command, *options.split(), cwd=trained, code=2)
    assert done.stderr.startswith(f"mt: {sentence}")
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""
    assert not (trained / "never").exists()


@pytest.mark.parametrize(("command", "options"), USAGE, ids=str)
def test_unknown_options_and_values_are_wrong_usage(trained: Path, command: list[str], options: str) -> None:
    done = mt(*command, *options.split(), cwd=trained, code=2)
    assert options.split()[-2 if " " in options else 0].split("=")[0] in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("command", "options"),
    [
        *((EVAL, f"--tune-length-penalty {option}") for option in TUNING_EXCLUDES),
        *((TRANSLATE, f"--length-penalty {penalty}") for penalty in ("1e9", "nan")),
    ],
    ids=str,
)
def test_useless_and_out_of_bounds_options_are_refused(trained: Path, command: list[str], options: str) -> None:
    mt(*command, *options.split(), cwd=trained, code=2)


@pytest.mark.parametrize(
    ("command", "options", "lines"),
    [
        (TRANSLATE, "--greedy --beam 1", 1),
        (TRANSLATE, "--beam 3 --n-best 3", 3),
        (TRANSLATE, "--mbr 4", 1),  # more than the model's beam, which is widened
        (TRANSLATE, "--mbr 4 --beam 6 --utility bleu", 1),
        (TRANSLATE, "--n-best 2", 2),
        (["translate"], "", 0),
    ],
    ids=str,
)
def test_options_that_go_together(trained: Path, command: list[str], options: str, lines: int) -> None:
    found = mt(*command, *options.split(), cwd=trained).stdout.splitlines()
    # Equal texts among the n best, from different token sequences, are printed once.
    assert min(lines, 1) <= len(found) <= lines
