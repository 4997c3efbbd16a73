"""What docs/output.md promises to programs is what they get, field by field."""

import json
import re
from pathlib import Path
from typing import Any

from command import mt

PAGE = (Path(__file__).parents[2] / "docs" / "output.md").read_text()


def listed(beginning: str) -> set[str]:
    """The fields that the page names in the row of a table that begins so."""
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {beginning}")]
    return set(re.findall(r"`(\w+)`", row.split("|")[2]))


def fields_of_results() -> set[str]:
    section = PAGE.split("## `eval/test.json`")[1].split("##")[0]
    return {name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def test_events(trained: Path) -> None:
    events: list[dict[str, Any]] = [
        json.loads(line) for line in (trained / "runs" / "tiny" / "metrics.jsonl").read_text().splitlines()
    ]
    rows = {"start": "`start`", "train": "`train`", "validation": "`validation`", "done": "`done`"}
    assert {event["event"] for event in events} == set(rows)
    for event in events:
        assert set(event) - {"event", "step", "time"} == listed(rows[event["event"]])
    for result in events[-1]["test"]:
        assert set(result) | {"comet", "terms"} == fields_of_results()
    for result in events[-1]["formats"]:
        assert all(f"`{name}`" in PAGE for name in result)


def test_a_model_of_several_source_languages(many_languages: Path) -> None:
    run = many_languages / "runs" / "many"
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (result, *_) = json.loads((run / "eval" / "test.json").read_text())["results"]
    more = (set(result) | {"comet", "terms"}) - fields_of_results()
    more |= {name for each in events if each["event"] == "validation" for name in each} - listed("`validation`")
    assert more - {"event", "step", "time"} == {"source_lang", "zero_shot", "wrong_language", "bleu_by_pair"}
    assert all(f"`{name}`" in PAGE for name in more - {"event", "step", "time"})


def test_scores(trained: Path) -> None:
    found = json.loads((trained / "runs" / "tiny" / "eval" / "test.json").read_text())
    assert set(found) == {"sentences", "results"}
    for result in found["results"]:
        assert set(result) | {"comet", "terms"} == fields_of_results()


def names_in(value: Any) -> set[str]:
    """All keys, however deep."""
    if isinstance(value, dict):
        return set(value).union(*map(names_in, value.values()))
    return set[str]().union(*map(names_in, value)) if isinstance(value, list) else set()


def test_comparisons_and_the_examination_of_a_corpus(trained: Path) -> None:
    compared = json.loads(mt("compare", "runs/tiny", "runs/tiny", "--json", cwd=trained).stdout)
    checked = json.loads(mt("data", "check", "tiny.yaml", "--json", cwd=trained).stdout)
    for name in (names_in(compared) - names_in(compared["comparisons"][0]["sentence_chrf"])) | set(checked):
        assert f"`{name}`" in PAGE, name
