"""`mt eval --perturb`: a test set in capitals, with typos and spans to copy."""

import json
import random
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from data_helpers import write_lines
from engine_helpers import ENGLISH, GERMAN, printed, whole_folder
from mt import evaluate_robustness
from mt.bundle.load_translator import open_model
from mt.data import phrasebook
from mt.data.eval_texts import EvalText
from mt.decoding.engine import SearchOptions
from mt.errors import InputError
from mt.extras.scoring.perturbation import PERTURBATIONS, evaluate_perturbed, perturbed
from mt.storage.run_dir import ModelDir

PAIRS = list(phrasebook.sentence_pairs("valid"))[:200]
TEXT = EvalText("it", [en for en, _ in PAIRS], [it for _, it in PAIRS])
OPTIONS = SearchOptions(1)


class Copier:
    """A translator that returns its input, or loses what `lose` names."""

    def __init__(self, lose: str = "") -> None:
        self.lose = lose

    def for_text(self, text: EvalText) -> "Copier":
        return self

    def best(self, lines: list[str], options: SearchOptions) -> list[str]:
        return [line.replace(self.lose, "") if self.lose else line for line in lines]


def results(translator: Copier, text: EvalText) -> dict[str, tuple[float, float | None, float | None]]:
    found = evaluate_perturbed(translator, [text], OPTIONS, "en", "13a")  # type: ignore[arg-type]
    assert [result.perturbation for result in found] == list(PERTURBATIONS)
    return {r.perturbation: (r.bleu, r.share_of_clean, r.copied) for r in found}


def test_references_change_as_a_user_expects() -> None:
    """So a translator that is perfect under the change keeps all of its BLEU."""
    found = results(Copier(), EvalText("it", TEXT.references, TEXT.references))
    for name in ("clean", "upper case", "title case", "no final mark", *(n for n in PERTURBATIONS if "with" in n)):
        assert found[name][0] == pytest.approx(100), name
    for name in ("lower case", "typos", "doubled mark"):
        assert 40 < found[name][0] < 99, name
    assert [found[f"with {kind}"][2] for kind in ("url", "emoji", "number", "code")] == [100.0] * 4
    assert found["clean"][2] is None


def test_spans_that_are_lost_are_counted() -> None:
    found = results(Copier("://"), TEXT)
    texts, spans = perturbed(TEXT, "with url", "en")
    kept = sum("://" not in span for span in spans)
    assert found["with url"][2] == pytest.approx(100 * kept / len(spans))
    assert all(
        span in source and span in reference
        for span, source, reference in zip(spans, texts.sources, texts.references, strict=True)
    )


def test_a_perturbed_text_is_a_pure_function() -> None:
    for name in PERTURBATIONS:
        first = perturbed(TEXT, name, "en")
        random.random()
        assert perturbed(TEXT, name, "en") == first
    typos = perturbed(TEXT, "typos", "en")[0]
    before, after = (" ".join(text.sources).split(" ") for text in (TEXT, typos))
    words = list(zip(before, after, strict=True))
    assert sum(a != b for a, b in words) / len(words) == pytest.approx(0.05, abs=0.015)
    assert typos.references == TEXT.references


def test_the_command_scores_each_text(tmp_path: Path) -> None:
    folder = whole_folder(tmp_path / "model")
    for name, lines in (("source", ENGLISH), ("reference", GERMAN)):
        write_lines(tmp_path / name, lines)
    files = ("--source", tmp_path / "source", "--reference", tmp_path / "reference")
    scored = json.loads(printed("eval", "--model", folder.root, "--perturb", "--json", "--beam", "2", *files))
    rows = {row["perturbation"]: row for row in scored["perturbations"]}
    assert list(rows) == list(PERTURBATIONS)
    assert list(rows["clean"]) == ["perturbation", "target_lang", "bleu", "share_of_clean", "copied"]
    translator = open_model(ModelDir(folder.root)).translator
    upper = translator.best([line.upper() for line in ENGLISH], SearchOptions(2, max_length=256))
    expected = BLEU().corpus_score(upper, [[line.upper() for line in GERMAN]]).score
    assert rows["upper case"]["bleu"] == pytest.approx(expected, abs=1e-3)
    table = evaluate_robustness(folder.root, source=files[1], reference=files[3], beam_size=2)
    assert table.json == scored
    assert str(table).split("\n")[0].split() == ["text", "BLEU", "%", "of", "clean", "copied", "%"]
    for other in ("--sample", "--mbr 2", "--output x", "--metrics chrf", "--comet-model x", "--tune-length-penalty"):
        with pytest.raises(InputError, match="contradict"):
            printed("eval", "--model", folder.root, "--perturb", *other.split())
