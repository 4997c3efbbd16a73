"""Models of several target languages: tags select them, and data and scores are separated by language."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from command import mt
from conftest import LETTERS, into
from conftest import TWO_LANGUAGES as CONFIG
from mt.bundle.load_translator import open_model, read_config
from mt.bundle.model_folder import build_model, load_model
from mt.bundle.pretrained import copy_weights
from mt.config import parse_config
from mt.data.eval_texts import EvalText, read_texts
from mt.data.mixture import MixturePart, read_parts
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import EOS_ID, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.evaluation.length_penalty import try_length_penalties
from mt.evaluation.texts import pair_text
from mt.storage.run_dir import RunDir


def refused(*arguments: str, cwd: Path) -> str:
    """Return the error of a command."""
    return mt(*arguments, cwd=cwd, code=2).stderr.strip()


def copy_inputs(run: Path, folder: Path) -> None:
    for path in run.glob("*.*"):
        shutil.copy(path, folder)


def test_the_tag_selects_the_language(two_languages: Path) -> None:
    sentences = ["a b c d", "j i", "", "f"]
    for language in ("xx", "yy"):
        for engine in ("ctranslate2", "torch"):
            found = mt("translate", "--to", language, "--engine", engine, "--", *sentences, cwd=two_languages).stdout
            assert found.split("\n")[:-1] == [into(language, sentence) for sentence in sentences]


def test_the_command_suggested_after_training_works(two_languages: Path) -> None:
    end = mt("train", "--config", "two.yaml", cwd=two_languages).stdout.splitlines()
    (following,) = [line.removeprefix("next: mt ") for line in end if line.startswith("next: ")]
    assert mt(*shlex.split(following), cwd=two_languages).stdout.strip()


def test_a_language_must_be_chosen_and_exist(two_languages: Path) -> None:
    message = refused("translate", "a b", cwd=two_languages)
    assert message == "mt: the model translates into xx, yy; no target language was chosen\n  choose with --to xx"
    assert "not into zz" in refused("translate", "--to", "zz", "a b", cwd=two_languages)


@pytest.mark.slow
def test_scores_are_reported_by_language(two_languages: Path) -> None:
    both = json.loads(mt("eval", "--json", cwd=two_languages).stdout)
    assert both["sentences"] == 40
    assert [(r["target_lang"], r["method"]) for r in both["results"]] == [
        *(("xx", method) for method in ("greedy", "beam")),
        *(("yy", method) for method in ("greedy", "beam")),
    ]
    assert all(result["exact_match"] > 70 for result in both["results"])  # without tags at most half of them all
    one = json.loads(mt("eval", "--json", "--to", "yy", cwd=two_languages).stdout)
    assert [r["bleu"] for r in one["results"]] == [r["bleu"] for r in both["results"][2:]]
    assert json.loads((two_languages / "runs" / "two" / "eval" / "test.json").read_text())["sentences"] == 40
    mt("eval", cwd=two_languages)
    scores = two_languages / "runs" / "two" / "eval"
    assert (scores / "test.yy.reference").read_text() == (two_languages / "valid.yy").read_text()
    assert (scores / "test.xx.beam").read_text().count("\n") == 20
    table = mt("eval", cwd=two_languages).stdout
    assert "language" in table
    given = ("--source", "valid.en", "--reference", "valid.xx", "--output", "out")
    assert "choose with --to" in refused("eval", *given, cwd=two_languages)
    alone = json.loads(mt("eval", "--json", "--to", "xx", *given, cwd=two_languages).stdout)
    assert alone["results"][0]["bleu"] == both["results"][0]["bleu"]


def test_synthetic_text_is_made_in_one_language(two_languages: Path) -> None:
    options = ("distill", "--input", "valid.en", "--output", "made", "--greedy")
    assert "choose with --to" in refused(*options, cwd=two_languages)
    mt(*options, "--to", "yy", cwd=two_languages)
    made, reference = ((two_languages / name).read_text().split("\n") for name in ("made", "valid.yy"))
    assert sum(m == r for m, r in zip(made, reference, strict=True)) > 14


def test_a_sentence_begins_with_the_tag_of_its_language(two_languages: Path) -> None:
    run = RunDir(two_languages / "runs" / "two")
    tags = TokenizerPair.load(run.tokenizer, shared=True).source.tags
    assert set(tags) == {"xx", "yy"}
    parts = read_parts(run.prepared_counts, "train")
    corpus = EncodedCorpus.open(run.encoded("train"))
    assert len(corpus) == sum(part.pairs for part in parts)
    tokens, starts = corpus.sides["source"]
    firsts = tokens[starts[:-1]].tolist()
    assert firsts == [tags["xx"]] * parts[0].pairs + [tags["yy"]] * parts[1].pairs
    assert not set(tags.values()) & set(corpus.sides["target"][0].tolist())


def test_languages_without_pairs_are_refused_and_empty_sources_reported(two_languages: Path, tmp_path: Path) -> None:
    copy_inputs(two_languages, tmp_path)
    lines = (tmp_path / "train.yy").read_text().count("\n")
    (tmp_path / "train.yy").write_text("\n" * lines)
    message = refused("train", "--config", "two.yaml", cwd=tmp_path)
    assert "data.train: train.en and train.yy: none of its pairs is left to train on" in message
    assert "data.train: no pair into yy is left to train on" in message


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_language_without_scores_is_reported(two_languages: Path, tmp_path: Path, split: str) -> None:
    copy_inputs(two_languages, tmp_path)
    only = f"data.{split}=[{{source: valid.en, target: valid.xx, target_lang: xx}}]"
    done = mt("train", "--config", "two.yaml", "--set", "training.max_steps=1", "--set", only, cwd=tmp_path)
    warnings = [line for line in done.stderr.splitlines() if "no pair into" in line]
    assert [line[line.index("data.") :] for line in warnings] == [
        f"data.{split}: no pair into yy, so no score covers that language"
    ]


def test_a_pretrained_model_keeps_its_tags(two_languages: Path, tmp_path: Path) -> None:
    """A tag's embedding moves to its id in the run's own tokenizer."""
    loaded = load_model(RunDir(two_languages / "runs" / "two").model, torch.device("cpu"))
    lines = [" ".join(LETTERS), "k l m n o p q r s t"]
    ours = TokenizerPair.train(lines, lines, 320, shared=True, tags=("yy", "xx"))
    torch.manual_seed(5)
    model = build_model(loaded.config, ours)
    copy_weights(model, ours, loaded)
    rows, theirs = model.source_embedding.tokens.weight, loaded.model.source_embedding.tokens.weight
    for language in ("xx", "yy"):
        mine, other = ours.source.tags[language], loaded.tokenizers.source.tags[language]
        assert torch.equal(rows[mine], theirs[other]), language
    assert ours.source.tags != loaded.tokenizers.source.tags


@pytest.mark.parametrize("reused", [True, False])
def test_a_pretrained_tokenizer_must_have_the_languages(
    two_languages: Path, trained: Path, tmp_path: Path, reused: bool
) -> None:
    copy_inputs(two_languages, tmp_path)
    given = ["--set", f"training.init_from={RunDir(trained / 'runs' / 'tiny').model.root}"]
    shape = yaml.safe_load((trained / "tiny.yaml").read_text())["model"]
    changes = [*given, "--set", f"model={json.dumps(shape)}", "--set", "training.max_steps=2"]
    command = ["train", "--config", "two.yaml", *changes, "--set", f"training.init_tokenizer={str(reused).lower()}"]
    done = mt(*command, cwd=tmp_path, code=2 if reused else 0)
    if reused:
        assert "has no tag for xx" in done.stderr


def test_length_penalties_are_scored_in_every_language(two_languages: Path) -> None:
    run = RunDir(two_languages / "runs" / "two")
    opened, config = open_model(run.model), read_config(run.model)
    texts = read_texts(run, "valid", config.data)
    worse = [texts[0], EvalText("yy", texts[1].sources, ["x y z"] * len(texts[1].sources))]
    both, half = (try_length_penalties(opened.translator, config, each)[0] for each in (texts, worse))
    assert half.bleu < both.bleu / 2 + 10
    assert half.length_ratio != pytest.approx(both.length_ratio)


def test_references_are_normalised_to_nfc(tmp_path: Path, notices: list[str]) -> None:
    (tmp_path / "s").write_text("one\ntwo\n")
    (tmp_path / "r").write_text("ti\u0302\nb\n")
    text = pair_text(tmp_path / "s", tmp_path / "r", parse_config(CONFIG, "two.yaml").data, "yy", None)
    assert text.references == ["t\u00ee", "b"]
    assert f"{tmp_path / 'r'}: 1 lines are compared in Unicode normal form C, the form that models write" in notices


def test_a_tag_is_never_encoded_from_text_or_decoded() -> None:
    tokenizer = BpeTokenizer.train(["translate <2it> this <2it>"] * 20, 330, ["it", "pt-BR"])
    assert tokenizer.tags == {"it": 260, "pt-BR": 261}
    ids = tokenizer.encode("<2it> this <2pt-BR>")
    assert not set(ids) & {260, 261}
    assert tokenizer.decode(ids) == "<2it> this <2pt-BR>"
    assert tokenizer.decode([260, *ids, 261, EOS_ID]) == "<2it> this <2pt-BR>"
    assert BpeTokenizer.train(["translate <2it> this"] * 20, 330).tags == {}


def test_held_out_sentences_are_the_same_in_every_language(two_languages: Path, tmp_path: Path) -> None:
    copy_inputs(two_languages, tmp_path)
    (tmp_path / "two.yaml").write_text(CONFIG)
    settings = ("--set", "data.valid={from_train: 30}", "--set", "data.test={from_train: 20}")
    mt("train", "--config", "two.yaml", "--set", "training.max_steps=1", *settings, cwd=tmp_path)
    run = RunDir(tmp_path / "runs" / "two")
    train_sources = set(run.text_file("train", "source").read_text().split("\n")[:-1])
    for split, number in (("valid", 30), ("test", 20)):
        texts = read_texts(run, split, parse_config(CONFIG, "two.yaml").data)
        assert [text.target_lang for text in texts] == ["xx", "yy"]
        assert [len(text.sources) for text in texts] == [number, number]
        assert sorted(texts[0].sources) == sorted(texts[1].sources)
        for text in texts:
            assert not train_sources & set(text.sources)
            assert text.references == [into(text.target_lang, source) for source in text.sources]
    train = read_parts(run.prepared_counts, "train")
    assert [part.target_lang for part in train] == ["xx", "yy"]
    assert train[0].pairs == train[1].pairs


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("data.target_lang=[xx, xx]", "data.target_lang: names xx more than once"),
        ("data.target_lang=[]", "data.target_lang: too short: 0 given, at least 1 needed"),
        ("data.target_lang=[xx, yy, zz]", "data.target_lang: no source of data.train is in zz"),
        ("data.target_lang=xx", "data.train.1: is in yy, which data.target_lang does not name"),
        ("data.target_lang=[xx, 5]", "data.target_lang.1: must be text, not 5; put quotes around it"),
        ("data.train.1.target_lang=null", "data.train.1: needs a target_lang of its own, one of xx, yy"),
        ("data.valid.0.weight=2", "data.valid.0: has a weight, which is for training text only"),
        ("data.train.0.weight=0", "data.train.0.weight: must be more than 0.0, not 0"),
        ("data.temperature=0.5", "data.temperature: must be at least 1.0, not 0.5"),
    ],
)
def test_invalid_languages_and_weights_are_refused(change: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_config(CONFIG, "x.yaml", [change])
    assert sentence in str(caught.value)


def test_parts_are_read_from_the_counts(tmp_path: Path) -> None:
    (tmp_path / "counts").write_text('{"parts": {"valid": [{"pairs": 3, "target_lang": "xx"}]}}')
    assert read_parts(tmp_path / "counts", "valid") == [MixturePart(3, "xx")]
