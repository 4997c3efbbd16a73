"""Scores and signatures against the `sacrebleu` command, and the public JSON object."""

import json
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_char import TokenizerChar
from sacrebleu.tokenizers.tokenizer_intl import TokenizerV14International
from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

from config_helpers import SMALLEST
from engine_helpers import translation_settings
from model_helpers import lively_model
from mt.config import EvaluationConfig, parse_config
from mt.data.eval_texts import EvalText
from mt.data.tokenizer import BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.text_translation import Translated
from mt.decoding.torch_engine import TorchEngine
from mt.decoding.translator import Translator
from mt.evaluation.test_set import MethodResult, evaluate, results_json, results_table, search_options, write_results
from mt.metrics.scores import Scores, bleu_tokenizer, corpus_bleu, score

GERMAN = """Ein Mann mit einem roten Hut läuft über die Straße.
Zwei Hunde spielen im Schnee, und ein Kind lacht!
"Kommst du mit?", fragt die Frau im 3. Stock.
Die Mannschaft gewann das Spiel mit 2:1 (nach Verlängerung).
Eine Gruppe von Menschen steht vor einem Gebäude - es regnet.
Der Junge springt ins Wasser; seine Schwester sieht zu.""".splitlines()
CHINESE = ["我非常爱你。", "两只狗在雪地里玩，孩子笑了。", "这座房子有3层，很旧。", "她在读一本书。"]
JAPANESE = [
    "私はあなたをとても愛しています。",
    "二匹の犬が雪の中で遊んでいる。",
    "この家は3階建てです。",
    "彼女は本を読んでいる。",
]


def distorted(references: list[str], copies: int = 4, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return hypotheses with errors of many kinds, one empty and some correct, and their references."""
    rng = random.Random(seed)
    hypotheses, repeated = [], references * copies
    for reference in repeated:
        parts = reference.split() if " " in reference else list(reference)
        for _ in range(rng.randrange(4)):
            parts[rng.randrange(len(parts))] = rng.choice([*parts, "the", ""])
        if rng.random() < 0.2:
            rng.shuffle(parts)
        hypotheses.append((" " if " " in reference else "").join(part for part in parts if part))
    hypotheses[1] = ""
    hypotheses[2] = repeated[2]
    return hypotheses, repeated


def sacrebleu(folder: Path, pair: tuple[list[str], list[str]], *options: str) -> dict[str, dict]:
    """Return the output of the command, by metric."""
    paths = [folder / "hypotheses", folder / "references"]
    for path, lines in zip(paths, pair, strict=True):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", paths[1], "-i", paths[0], "--width", "6", *options]
    done = subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8")
    printed = json.loads(done.stdout)
    return {entry["name"]: entry for entry in (printed if isinstance(printed, list) else [printed])}


def scored(pair: tuple[list[str], list[str]], lang: str = "de", **settings: object) -> Scores:
    return score(*pair, EvaluationConfig(**settings), lang)


@pytest.mark.parametrize("samples", [1000, 50])
def test_equals_the_sacrebleu_command(tmp_path: Path, samples: int) -> None:
    pair = distorted(GERMAN)
    ours = scored(pair, bootstrap_samples=samples)
    options = ["--metrics", "bleu", "chrf", "ter", "--confidence", "--confidence-n", str(samples)]
    theirs = sacrebleu(tmp_path, pair, *options)
    bleu = theirs["BLEU"]
    assert 20 < ours.bleu < 90
    assert ours.bleu == pytest.approx(bleu["score"], abs=1e-5)
    assert ours.signatures["bleu"] == bleu["signature"]
    assert f"bs:{samples}" in bleu["signature"]
    mean, radius = bleu["confidence_mean"], bleu["confidence_var"]
    assert (ours.bleu_low, ours.bleu_high) == pytest.approx((mean - radius, mean + radius), abs=1e-5)
    assert ours.bleu_low < ours.bleu < ours.bleu_high
    ratio = float(bleu["verbose_score"].split("ratio = ")[1].split()[0])
    assert ours.length_ratio == pytest.approx(ratio, abs=5e-4)
    assert ours.chrf == pytest.approx(theirs["chrF2"]["score"], abs=1e-5)
    assert ours.ter == pytest.approx(theirs["TER"]["score"], abs=1e-5)
    # The command resamples chrF and TER too, which mt does not, so that their signatures differ in that.
    for name, metric in (("chrf", "chrF2"), ("ter", "TER")):
        words = theirs[metric]["signature"].split("|")
        assert ours.signatures[name].split("|") == [w for w in words if not w.startswith(("bs:", "seed:"))]


@pytest.mark.parametrize(
    ("lang", "references", "tokenizer"), [("zh", CHINESE, "zh"), ("ja", JAPANESE, "char"), ("en", GERMAN, "13a")]
)
def test_the_tokenizer_goes_by_language(tmp_path: Path, lang: str, references: list[str], tokenizer: str) -> None:
    pair = distorted(references)
    ours = scored(pair, lang, bootstrap_samples=0)
    theirs = sacrebleu(tmp_path, pair, "--tokenize", tokenizer)["BLEU"]
    assert ours.bleu == pytest.approx(theirs["score"], abs=1e-5)
    assert ours.signatures["bleu"] == theirs["signature"]
    assert f"tok:{tokenizer}" in ours.signatures["bleu"]
    assert corpus_bleu(*pair, bleu_tokenizer("auto", lang)) == pytest.approx(theirs["score"], abs=1e-5)


def test_every_spelling_of_a_language_means_it() -> None:
    spellings = {
        "zh": "zh zh-CN zh_Hans ZH yue zho_Hant",
        "char": "ja ja_JP jpn ko kor_Hang th tha_Thai bo",
        "13a": "de deu_Latn pt-BR",
    }
    for tokenizer, codes in spellings.items():
        assert {code: bleu_tokenizer("auto", code) for code in codes.split()} == dict.fromkeys(codes.split(), tokenizer)
    assert bleu_tokenizer("intl", "zh") == "intl"


@pytest.mark.parametrize("lang", ["zh", "yue", "ja"])
def test_ter_counts_characters_where_words_are_not_separated(tmp_path: Path, lang: str) -> None:
    hypotheses, references = distorted(JAPANESE if lang == "ja" else CHINESE)
    ours = scored((hypotheses, references), lang, bootstrap_samples=0)
    expected = TER(normalized=True, asian_support=True).corpus_score(hypotheses, [references]).score
    assert ours.ter == pytest.approx(expected)
    assert ours.ter < TER().corpus_score(hypotheses, [references]).score
    assert "asian:yes" in ours.signatures["ter"]


def test_there_is_no_ter_where_it_would_count_sentences() -> None:
    found = scored(distorted(GERMAN), "th", bootstrap_samples=0)
    assert found.ter is None
    assert "ter" not in found.signatures
    assert scored(distorted(GERMAN), "ko", bootstrap_samples=0).ter is not None


def test_case_and_punctuation_count() -> None:
    references = GERMAN[:2] * 2
    perfect = scored((references, references), bootstrap_samples=0)
    assert perfect.bleu == pytest.approx(100)
    assert perfect.exact_match == 100
    assert scored(([line.lower() for line in references], references), bootstrap_samples=0).bleu < 90
    assert scored(([line.rstrip(".!") for line in references], references), bootstrap_samples=0).bleu < 99


def test_intervals_repeat_whatever_was_drawn_before() -> None:
    pair = distorted(GERMAN)
    first = scored(pair, bootstrap_samples=100, bleu_tokenize="char")
    assert "tok:char" in first.signatures["bleu"]
    np.random.seed(99)
    random.seed(99)
    assert scored(pair, bootstrap_samples=100, bleu_tokenize="char") == first


@pytest.mark.parametrize("seed", ["12345", "7"])
def test_intervals_are_those_of_sacrebleu_without_its_memory(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    (hypotheses, references), metric = distorted(GERMAN, copies=40), BLEU(tokenize="13a")
    theirs = metric.corpus_score(hypotheses, [references], n_bootstrap=2000)
    tracemalloc.start()
    ours = scored((hypotheses, references), metrics=["bleu"], bootstrap_samples=2000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (ours.bleu, ours.signatures["bleu"]) == (theirs.score, str(metric.get_signature()))
    assert (ours.bleu_low, ours.bleu_high) == pytest.approx((theirs._mean - theirs._ci, theirs._mean + theirs._ci))
    assert peak < 240 * 2000 * 40 / 2, "half of the statistics of all samples"


def test_intervals_without_a_seed_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "None")
    found = scored(distorted(GERMAN), bootstrap_samples=20)
    assert "bs:20|seed:none" in found.signatures["bleu"]
    assert found.bleu_low < found.bleu < found.bleu_high


@pytest.mark.parametrize("correct", [range(10), range(1)])
def test_an_interval_is_possible_and_holds_the_score(correct: range) -> None:
    lines = [f"one two three four five {n}" for n in range(11)]
    hypotheses = [line if n in correct else "x" for n, line in enumerate(lines)]
    scores = scored((hypotheses, lines), bootstrap_samples=20)
    assert 0 <= scores.bleu_low <= scores.bleu <= scores.bleu_high <= 100


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_only_the_metrics_asked_for(metric: str) -> None:
    scores = scored(distorted(GERMAN), metrics=[metric], bootstrap_samples=20)
    values = {"bleu": scores.bleu, "chrf": scores.chrf, "ter": scores.ter}
    assert {name for name, value in values.items() if value is not None} == {metric}
    assert set(scores.signatures) == {metric}
    assert (scores.bleu_low is not None) == (scores.bleu_high is not None) == (metric == "bleu")
    everything = scored(distorted(GERMAN), bootstrap_samples=20)
    assert values[metric] == getattr(everything, metric)
    assert scores.length_ratio == everything.length_ratio


def test_a_single_sentence_or_too_few_resamplings_have_no_interval() -> None:
    single = (["Ein Mann mit Hut"], ["Ein Mann mit einem Hut"])
    for pair, samples in ((single, 1000), (distorted(GERMAN), 0), (distorted(GERMAN), 1)):
        scores = scored(pair, bootstrap_samples=samples)
        assert scores.bleu_low is scores.bleu_high is None
        assert scores.bleu > 0
        assert "bs:" not in scores.signatures["bleu"]


def test_nothing_translated_scores_nothing() -> None:
    scores = scored(([""] * 4, GERMAN[:4]), bootstrap_samples=10)
    assert scores.bleu == scores.chrf == scores.exact_match == scores.length_ratio == 0
    assert scores.ter == 100
    assert scored((["a b", "c", "d", "e "], ["a b", "C", "d", "e"]), bootstrap_samples=0).exact_match == 50


# The public JSON object ----------------------------------------------------------------------------------------------

PROMISED = set("method bleu bleu_low bleu_high chrf ter length_ratio sentences_per_second signature".split())
SETTINGS = ["evaluation.bootstrap_samples=10", "decoding.max_length=8", "decoding.beam_size=3"]


def translator(lines: list[str]) -> Translator:
    tokenizer = BpeTokenizer.train(lines, 320)
    engine = TorchEngine(lively_model(vocab=tokenizer.vocab_size, max_length=100), 400)
    return Translator(engine, TokenizerPair(tokenizer, tokenizer), translation_settings(100))


def test_an_evaluation_has_everything_promised(tmp_path: Path) -> None:
    config = parse_config(SMALLEST, "x.yaml", SETTINGS)
    model = translator(GERMAN)
    results = evaluate(model, config, [EvalText("de", GERMAN, GERMAN)])
    public = json.loads(json.dumps(results_json(results), allow_nan=False))
    assert public["sentences"] == len(GERMAN)
    assert [result["method"] for result in public["results"]] == ["greedy", "beam"]
    for result, private in zip(public["results"], results, strict=True):
        assert result.keys() >= PROMISED
        assert result["signature"].startswith("nrefs:1|bs:10|seed:")
        assert result["sentences_per_second"] > 0
        assert result["bleu"] == pytest.approx(private.scores.bleu, abs=1e-3)
        assert private.translated.hypotheses == model.best(GERMAN, search_options(config, private.method))
        assert private.scores == score(private.translated.hypotheses, GERMAN, config.evaluation, "de")
    assert results[0].translated.hypotheses != results[1].translated.hypotheses

    write_results(tmp_path, "test", results)
    assert (tmp_path / "test.beam").read_text() == "".join(f"{line}\n" for line in results[1].translated.hypotheses)
    assert json.loads((tmp_path / "test.json").read_text()) == public
    printed = results_table(results)
    assert results[0].scores.signatures["bleu"] in printed
    assert f"{results[1].scores.bleu:.1f}" in printed


def test_metrics_left_out_are_null_in_the_object() -> None:
    result = MethodResult(
        "greedy", scored(distorted(GERMAN), metrics=["chrf"]), 12.3456, Translated(EvalText("de", [], []), [])
    )
    [public] = results_json([result])["results"]
    assert public.keys() >= PROMISED
    assert public["bleu"] is public["bleu_low"] is public["bleu_high"] is public["ter"] is public["signature"] is None
    assert public["chrf"] > 0
    assert "chrF2" in results_table([result])


def test_validations_keep_no_lines() -> None:
    """sacreBLEU's tokenizers would cache tens of thousands of lines during a training."""
    for tokenize in ("13a", "intl", "char", "none"):
        hypotheses, references = distorted(GERMAN)
        corpus_bleu(hypotheses, references, tokenize)
    for each in (Tokenizer13a, TokenizerRegexp, TokenizerV14International, TokenizerChar):
        assert each.__call__.cache_info().currsize == 0
