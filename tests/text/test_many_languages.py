"""Models of several source languages: directions, detection, zero-shot pairs, and translations in a wrong language."""

import json
import shutil
import time
from pathlib import Path

import pytest

import mt as api
from command import mt
from conftest import MANY_LANGUAGES as CONFIG
from conftest import write_many_languages
from mt.config import HubDataset, PairFiles, TableFile, parse_config
from mt.data.eval_texts import EvalText, read_texts
from mt.data.mixture import Share, read_parts, training_shares
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError
from mt.storage.run_dir import RunDir
from mt.text.language_id import wrong_language_share
from mt.text.languages import base_language, language_name

ENGLISH, GERMAN = "a dog likes the house and the ball", "ein Hund mag das Haus und den Ball"
FRENCH = "un chien aime la maison et le ballon"
PAIRS = (("en", "de"), ("en", "fr"), ("de", "en"), ("fr", "en"))
SOURCE_TAG = ("--set", "model.source_format=<s> lang text </s>")


def refused(*arguments: str, cwd: Path) -> str:
    return mt(*arguments, cwd=cwd, code=2).stderr.strip()


def translated(folder: Path, *arguments: str) -> list[str]:
    return mt("translate", *arguments, cwd=folder).stdout.split("\n")[:-1]


def test_a_source_is_read_both_ways() -> None:
    data = parse_config(CONFIG, "x.yaml").data
    assert data.pairs == PAIRS
    assert [data.languages_of(source) for source in data.train] == [PAIRS[0], PAIRS[2], PAIRS[1], PAIRS[3]]
    assert data.train[1] == PairFiles(source="train.de", target="train.en", source_lang="de", target_lang="en")
    both = ("en", "de")
    table = TableFile(file="a.tsv", source_column="x").opposite(both)
    assert data.columns_of(table) == ("de", "x")
    assert data.columns_of(TableFile(file="a.tsv", header=False).opposite(both)) == ("2", "1")
    assert data.columns_of(HubDataset(hub="a/b").opposite(both)) == ("de", "en")


def test_the_texts_of_ten_thousand_directions_are_read_at_once(tmp_path: Path) -> None:
    codes = [[f"{side}{a}{b}" for a in "abcdefghij" for b in "abcdefghij"] for side in "st"]
    train = [{"source": "a", "target": "b", "source_lang": s, "target_lang": t} for s, t in zip(*codes, strict=True)]
    tree = {"name": "x", "data": {"source_lang": codes[0], "target_lang": codes[1], "train": train}}
    run, part = RunDir(tmp_path), {"pairs": 1, "source_lang": codes[0][0], "target_lang": codes[1][1]}
    run.text.mkdir(parents=True)
    run.prepared_counts.write_text(json.dumps({"parts": {"test": [part]}}))
    for side in ("source", "target"):
        run.text_file("test", side).write_text(f"{side}\n")
    data, started = parse_config(json.dumps(tree), "x.yaml").data, time.process_time()
    assert read_texts(run, "test", data) == [EvalText("tab", ["source"], ["target"], "saa", zero_shot=True)]
    assert time.process_time() - started < 3


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_a_model_translates_in_every_direction(many_languages: Path, engine: str) -> None:
    lines = {code: (many_languages / f"valid.{code}").read_text().split("\n")[:-1] for code in ("en", "de", "fr")}
    for source, target in PAIRS:
        found = translated(many_languages, "--from", source, "--to", target, "--engine", engine, "--", *lines[source])
        assert sum(a == b for a, b in zip(found, lines[target], strict=True)) > 8, (source, target)
    # No tag names the source, so it need not be known.
    assert translated(many_languages, "--to", "en", GERMAN, FRENCH) == [ENGLISH, ENGLISH]


def test_a_pair_that_was_not_trained_is_named(many_languages: Path) -> None:
    notice = "from de to fr is zero-shot: the model was not trained on this pair of its languages"
    done = mt("translate", "--from", "de", "--to", "fr", GERMAN, cwd=many_languages)
    assert notice in done.stderr
    assert done.stdout.strip()
    assert "zero-shot" not in mt("translate", "--from", "de", "--to", "en", GERMAN, cwd=many_languages).stderr


def test_unknown_languages_are_refused(many_languages: Path) -> None:
    message = refused("translate", "--from", "it", "--to", "de", "ciao", cwd=many_languages)
    assert message == "mt: the model translates from en, de, fr; not from it\n  choose with --from en"
    assert "not into it" in refused("translate", "--from", "en", "--to", "it", "a dog", cwd=many_languages)
    assert "no target language was chosen" in refused("translate", "--from", "en", "a dog", cwd=many_languages)
    assert "is in de already" in refused("translate", "--from", "de", "--to", "de", GERMAN, cwd=many_languages)


def test_the_source_language_is_detected(many_languages: Path) -> None:
    lines = [FRENCH, "", GERMAN, ENGLISH, FRENCH]
    assert translated(many_languages, "--from", "auto", "--to", "en", "--", *lines) == [ENGLISH, "", *[ENGLISH] * 3]
    model = api.load(many_languages / "runs" / "many")
    assert model.source_langs == ("en", "de", "fr")
    assert model.pairs == PAIRS
    assert model.translate(ENGLISH, source_lang="auto", target_lang="fr") == FRENCH
    assert model.translate([ENGLISH, FRENCH], source_lang="auto", to="fr") == [FRENCH, FRENCH]
    assert list(model.stream([ENGLISH], source_lang="en", target_lang="de")) == [GERMAN]
    begun = model.translate([ENGLISH, GERMAN], source_lang="auto", to="en", prefix=["", "a d"], details=True)
    assert [each.text for each in begun] == [ENGLISH, ENGLISH]
    with pytest.raises(InputError, match="line 2 is in en already, and has a prefix"):
        model.translate([GERMAN, ENGLISH], source_lang="auto", to="en", prefix="a d")
    with pytest.raises(InputError, match="to and target_lang contradict each other"):
        model.translate(ENGLISH, to="fr", target_lang="fr")


def test_a_document_is_translated_from_a_detected_language(many_languages: Path, tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(f"# {GERMAN}\n")
    mt("translate", document, "--from", "auto", "--to", "en", "--output", tmp_path / "b.md", cwd=many_languages)
    assert (tmp_path / "b.md").read_text() == f"# {ENGLISH}\n"


def test_a_document_says_its_language_where_the_model_needs_to_know_none(many_languages: Path, tmp_path: Path) -> None:
    (tmp_path / "a.xlf").write_text(
        '<xliff version="1.2"><file original="a" datatype="plaintext" source-language="fr" target-language="en"><body>'
        '<trans-unit id="1"><source>un chien</source></trans-unit></body></file></xliff>'
    )
    mt("translate", tmp_path / "a.xlf", "--to", "en", "--output", tmp_path / "b.xlf", cwd=many_languages)
    assert "<target" in (tmp_path / "b.xlf").read_text()


def test_scores_are_reported_by_pair(many_languages: Path, tmp_path: Path) -> None:
    shutil.copytree(many_languages, tmp_path, dirs_exist_ok=True)
    run = RunDir(tmp_path / "runs" / "many")
    results = json.loads(mt("eval", "--json", cwd=tmp_path).stdout)["results"]
    beam = {(r["source_lang"], r["target_lang"]): r for r in results if r["method"] == "beam"}
    assert tuple(beam) == (*PAIRS[:3], ("de", "fr"), PAIRS[3])
    assert [pair for pair, result in beam.items() if result["zero_shot"]] == [("de", "fr")]
    assert all(beam[pair]["exact_match"] > 60 and beam[pair]["wrong_language"] == 0 for pair in PAIRS)
    assert beam["de", "fr"]["wrong_language"] > 50  # it was trained from German to English only
    table = mt("eval", cwd=tmp_path).stdout
    mean = sum(beam[pair]["bleu"] for pair in PAIRS) / 4
    rows = {tuple(line.split("  ")[0:1]): line for line in table.splitlines() if " beam " in line}
    assert ("de-fr (zero-shot)",) in rows
    assert f"{mean:.1f}" in rows["mean of 4",]
    assert (run.scores / "test.de-en.reference").read_text() == (tmp_path / "valid.en").read_text()
    only = json.loads(mt("eval", "--json", "--from", "de", "--to", "en", cwd=tmp_path).stdout)["results"]
    assert [(r["source_lang"], r["target_lang"]) for r in only] == [("de", "en")] * 2
    assert (run.scores / "test.de-en.json").is_file()
    mt("eval", "--to", "de", cwd=tmp_path)
    into_german = (run.scores / "test.de.json").read_text()
    of_source = ["compare", "runs/many", "runs/many", "--test-set", "test.from-de", "--json"]
    assert "mt eval --model runs/many --from de`" in mt(*of_source, cwd=tmp_path, code=2).stderr
    mt("eval", "--from", "de", cwd=tmp_path)
    assert (run.scores / "test.de.json").read_text() == into_german
    assert len(json.loads(mt(*of_source, cwd=tmp_path).stdout)["comparisons"]) == 2
    assert "--from fr --to en`" in mt(*of_source[:4], "test.fr-en", cwd=tmp_path, code=2).stderr
    files = ("--source", "valid.de", "--reference", "valid.fr", "--from", "de", "--to", "fr", "--output", "out")
    assert "zero_shot" in json.loads(mt("eval", "--json", *files, cwd=tmp_path).stdout)["results"][0]
    compared = json.loads(mt("compare", "runs/many", "runs/many", "--json", cwd=tmp_path).stdout)["comparisons"]
    assert [each["target_lang"] for each in compared] == [target for _, target in beam]
    beside = ["compare", "runs/many", run.scores / "test.en-de.beam", "--metrics", "chrf"]
    hint = mt(*beside, cwd=tmp_path, code=2).stderr.splitlines()[-1]
    assert hint == "  choose with --from en --to de"
    assert "no difference in chrF" in mt(*beside, *hint.split()[2:], cwd=tmp_path).stdout


def test_a_glossary_may_lack_terms_of_some_directions(many_languages: Path, tmp_path: Path, notices: list[str]) -> None:
    terms = "".join(f"<langSet xml:lang='{code}'><tig><term>x{code}</term></tig></langSet>" for code in ("en", "de"))
    (tmp_path / "terms.tbx").write_text(f"<martif><text><body><termEntry>{terms}</termEntry></body></text></martif>")
    found = api.evaluate(many_languages / "runs" / "many", glossary=tmp_path / "terms.tbx")
    assert {result.direction for result in found.results} >= {"en-de", "fr-en"}
    assert sum("no term in" in notice for notice in notices) == 3  # from and to French, one of them zero-shot
    with pytest.raises(InputError, match="no term in en and fr"):
        api.evaluate(many_languages / "runs" / "many", glossary=tmp_path / "terms.tbx", source_lang="en", to="fr")
    (tmp_path / "terms.tsv").write_text("dog\tHund\n")
    with pytest.raises(InputError, match="a TSV file does not name its languages"):
        api.evaluate(many_languages / "runs" / "many", glossary=tmp_path / "terms.tsv")


def test_validation_is_the_mean_over_pairs(many_languages: Path) -> None:
    run = RunDir(many_languages / "runs" / "many")
    events = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    for event in (each for each in events if each["event"] == "validation"):
        assert set(event["bleu_by_pair"]) == {"en-de", "en-fr", "de-en", "fr-en"}
        assert event["bleu"] == pytest.approx(sum(event["bleu_by_pair"].values()) / 4)


def test_the_model_folder_knows_its_pairs(many_languages: Path, two_languages: Path) -> None:
    model = RunDir(many_languages / "runs" / "many").model
    assert TranslationSettings.read(model.settings).trained_pairs == PAIRS
    assert json.loads(model.manifest.read_text())["pairs"] == [list(pair) for pair in PAIRS]
    single = RunDir(two_languages / "runs" / "two").model
    assert "pairs" not in json.loads(single.settings.read_text())
    assert "pairs" not in json.loads(single.manifest.read_text())
    assert TranslationSettings.read(single.settings).trained_pairs == (("en", "xx"), ("en", "yy"))


def test_a_tag_names_the_source_language_where_asked(tmp_path: Path) -> None:
    write_many_languages(tmp_path)
    mt("train", "--config", "many.yaml", *SOURCE_TAG, "--set", "training.max_steps=2", cwd=tmp_path)
    run = RunDir(tmp_path / "runs" / "many")
    tags = TokenizerPair.load(run.tokenizer, shared=True).source.tags
    assert set(tags) == {"en", "de", "fr"}
    tokens, starts = EncodedCorpus.open(run.encoded("train")).sides["source"]
    parts = read_parts(run.prepared_counts, "train")
    expected = [(tags[p.source_lang], tags[p.target_lang]) for p in parts for _ in range(p.pairs)]
    assert [(tokens[start], tokens[start + 1]) for start in starts[:-1]] == expected
    assert "no source language was chosen" in refused("translate", "--to", "de", ENGLISH, cwd=tmp_path)
    command = ("--to", "de", "--from", "en", ENGLISH, "--engine")
    assert translated(tmp_path, *command, "torch") == translated(tmp_path, *command, "ctranslate2")
    mt("export", "ctranslate2", "--output", "out", cwd=tmp_path)
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "['<2en>', '<2de>'] + source.encode" in readme
    assert "en to de, en to fr, de to en, fr to en" in readme


def test_languages_that_cannot_be_detected_are_refused(tmp_path: Path) -> None:
    write_many_languages(tmp_path)
    shutil.copy(tmp_path / "train.de", tmp_path / "train.xx")
    sources = [f"{{source: train.{code}, target: train.fr, source_lang: {code}}}" for code in ("en", "xx")]
    data = f"{{source_lang: [en, xx], target_lang: fr, train: [{', '.join(sources)}], valid: {sources[0]}, test: null}}"
    mt("train", "--config", "many.yaml", "--set", "training.max_steps=1", "--set", f"data={data}", cwd=tmp_path)
    message = refused("translate", "--from", "auto", ENGLISH, cwd=tmp_path)
    assert "the source language cannot be detected: xx is unknown to py3langid" in message


def test_no_direction_sees_the_held_out_sentences_of_another(tmp_path: Path) -> None:
    write_many_languages(tmp_path)
    settings = ("--set", "data.valid={from_train: 12}", "--set", "data.test={from_train: 12}")
    mt("train", "--config", "many.yaml", "--set", "training.max_steps=1", *settings, cwd=tmp_path)
    run = RunDir(tmp_path / "runs" / "many")
    texts = {
        split: {line for side in ("source", "target") for line in run.text_file(split, side).read_text().splitlines()}
        for split in ("train", "valid", "test")
    }
    assert len(texts["valid"]) > 12
    assert not texts["train"] & (texts["valid"] | texts["test"])
    parts = read_parts(run.prepared_counts, "test")
    assert {(part.source_lang, part.target_lang) for part in parts} == set(PAIRS)


def test_pairs_are_evened_out_by_temperature() -> None:
    languages = [("en", "de"), ("en", "de"), ("de", "en")]
    shares = training_shares([300, 100, 100], [1, 2, 1], 2, languages)
    assert shares == (Share(300, 1.0), Share(100, 2.0), Share(100, 2.0))
    assert training_shares([400, 100], [1, 1], 2, [("en", "de")] * 2) == (Share(400, 1.0), Share(100, 2.0))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("data.source_lang=[en, de]", "data.train.1: is read both ways, so data.source_lang and data.target_lang must"),
        ("data.train.0.source_lang=null", "data.train.0: needs a source_lang of its own, one of en, de, fr"),
        ("data.test.2.source_lang=it", "data.test.2: is from it, which data.source_lang does not name"),
        ("data.source_lang=[en, de, fr, it]", "data.source_lang: no source of data.train is from it"),
        ("data.train.0.synthetic=true", "data.train.0: is synthetic, so it cannot be read both ways"),
        ("training.bidirectional_epochs=2", "is for one target language and one source language"),
        ("exports=[argos]", "a model of several source languages cannot be exported as argos"),
    ],
)
def test_invalid_directions_are_refused(change: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_config(CONFIG, "x.yaml", [change])
    assert sentence in str(caught.value)


def test_translations_in_a_wrong_language_are_counted() -> None:
    codes = ["eng_Latn", "de", "fra_Latn"]
    assert wrong_language_share([GERMAN, FRENCH, ENGLISH, "12"], "de", codes) == 50
    assert wrong_language_share([GERMAN, FRENCH], "fra_Latn", codes) == 50
    assert wrong_language_share([GERMAN], "xx", codes) is None
    assert (base_language("deu_Latn"), language_name("deu_Latn")) == ("de", "German (Latn)")
