"""`mt export`: refusals, atomic output, and the CTranslate2 folder."""

import copy
import dataclasses
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
import yaml
from click.testing import CliRunner
from sacrebleu.metrics import BLEU
from tokenizers import Tokenizer

import mt as mt_api
from command import FAILPOINT, mt
from engine_helpers import ENGLISH
from export_helpers import lines_of, random_job, refusal, run_folder, run_readme, search, write
from import_helpers import marian
from mt.bundle.load_translator import open_model
from mt.cli import app
from mt.config import load_config
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.shortlist import Shortlist
from mt.data.tokenizer import EOS_ID
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import EngineChoice
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError
from mt.extras.export import ctranslate2 as to_ctranslate2
from mt.extras.export import exporting
from mt.extras.export.ctranslate2 import write_ctranslate2
from mt.extras.export.equivalence import reference_translator
from mt.model.transformer import Transformer
from mt.storage import atomic
from mt.storage.manifest import verify
from mt.storage.run_dir import MANIFEST, RunDir
from mt.text.casing import Casing
from mt.text.preprocessing import NO_PREPROCESSING, Preprocessing

WIDE = [
    *("model.d_model=32", "model.d_ff=64", "model.positions=learned", "tokenizer.shared=false"),
    "evaluation.bleu_tokenize=char",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run, which no test may change."""
    return run_folder(tmp_path_factory.mktemp("exported") / "run", *WIDE)


@pytest.fixture
def here(run: RunDir, tmp_path: Path) -> Path:
    """A folder with only that run."""
    (tmp_path / "run").symlink_to(run.root)
    return tmp_path


COMMAND = ("export", "ctranslate2", "--model", "run", "--output", "out")


def exported(folder: Path, *options: str) -> str:
    return mt(*COMMAND, *options, cwd=folder).stdout


def export_in_process(model: Path, output: Path, wanted: str = "ctranslate2") -> BaseException | None:
    """Run `mt export` in this process, and return its exception."""
    return CliRunner().invoke(app, ["export", wanted, "--model", str(model), "--output", str(output)]).exception


def translations(folder: Path, lines: list[str], **options: object) -> list[str]:
    """Translate lines with the library alone."""
    translator = ctranslate2.Translator(str(folder), **options)
    source, target = (Tokenizer.from_file(str(folder / f"{side}.json")) for side in ("source", "target"))
    found = translator.translate_batch(
        [source.encode(line).tokens for line in lines],
        beam_size=5,
        max_decoding_length=13,
        disable_unk=True,
        suppress_sequences=[["<pad>"], ["<s>"]],
    )
    return [
        target.decode([target.token_to_id(p) for p in one.hypotheses[0]], skip_special_tokens=False) for one in found
    ]


# CTranslate2 ----------------------------------------------------------------------------------------------------------


def test_the_readme_names_what_only_mt_does(trained: Path, tmp_path: Path) -> None:
    mt("export", "ctranslate2", "--model", "runs/tiny", "--output", str(tmp_path / "out"), cwd=trained)
    does = "restores the usual case of text in capitals, corrects spelling, keeps URLs and code."
    assert f"`mt` also {does}" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("quantization", ["float32", "float16", "int8"])
def test_a_plain_folder_translates(here: Path, run: RunDir, quantization: str) -> None:
    output = exported(here, "--quantization", quantization, "--max-loss", "100")
    assert {path.name for path in (here / "out").iterdir()} == {
        *("MANIFEST.json", "README.md", "config.json", "model.bin", "mt", "source.json", "target.json"),
        *("source_vocabulary.json", "target_vocabulary.json"),
    }
    assert json.loads((here / "out" / "MANIFEST.json").read_text())["export"] == "ctranslate2"
    readme = (here / "out" / "README.md").read_text()
    assert "`mt` also keeps URLs and code." in readme  # this folder has no words for the other two
    assert "ends in a loop" not in readme  # which the configuration turns off
    lines, references = (lines_of(run.text_file("valid", side)) for side in ("source", "target"))
    exact, found = (
        opened.translator.best(lines, opened.settings.search)
        for opened in (
            open_model(run.model, EngineChoice(compute_type=compute_type))
            for compute_type in ("float32", "int8" if quantization == "int8" else "float32")
        )
    )
    compute_type = "float32" if quantization == "float16" else "default"
    alone = translations(here / "out", lines, compute_type=compute_type)
    assert sum(one == other for one, other in zip(alone, found, strict=True)) >= len(lines) - 1
    if quantization != "int8":
        assert alone == exact
    before, after = (BLEU(tokenize="char").corpus_score(each, [references]).score for each in (exact, found))
    same = sum(one == other for one, other in zip(found, exact, strict=True))
    header, ours, theirs, signature, last = output.splitlines()
    assert header.split() == ["BLEU", "difference", "same", "of", str(len(lines))]
    assert ours.split() == ["model,", "float32", f"{before:.2f}"]
    assert theirs.split() == ["CTranslate2,", quantization, f"{after:.2f}", f"{after - before:+.2f}", str(same)]
    assert "tok:char" in signature
    assert last == "ctranslate2: out"


def test_the_weights_are_in_the_format_asked_for_and_translate_as_the_readme_says(
    here: Path, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {}
    for quantization in ("int8", "float16", "float32"):
        exported(here, "--quantization", quantization, "--force", "--max-loss", "100")
        sizes[quantization] = (here / "out" / "model.bin").stat().st_size
    assert sizes["float16"] < 0.55 * sizes["float32"]
    assert sizes["int8"] < 0.7 * sizes["float16"]
    monkeypatch.chdir(here / "out")
    opened = open_model(run.model)
    assert run_readme(here / "out")[0] == opened.translator.best(["the dog"], opened.settings.search)[0] + "\n"


def test_the_readme_searches_as_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_folder(tmp_path / "run", *WIDE, "decoding.min_length=7", "decoding.no_repeat_ngram_size=1")
    exported(tmp_path)
    opened = open_model(run.model)
    options = opened.settings.search
    for others in ({"min_length": 0}, {"no_repeat_ngram_size": 0}):
        found, other = (
            opened.translator.best(["the dog"], each) for each in (options, dataclasses.replace(options, **others))
        )
        assert found != other
    monkeypatch.chdir(tmp_path / "out")
    assert run_readme(tmp_path / "out")[0] == f"{found[0]}\n"


@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)], ids=["source", "target", "both"])
def test_the_readme_opens_sentencepiece_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sides: tuple[int, ...]
) -> None:
    job = random_job("tokenizer.shared=false")
    pair = list(job.tokenizers)
    for side in sides:
        pair[side] = SentencePieceTokenizer.train(ENGLISH, pair[side].vocab_size, (), "bpe")
    job = dataclasses.replace(job, tokenizers=TokenizerPair(*pair), number_format="float32")
    write_ctranslate2(job, tmp_path, "")
    monkeypatch.chdir(tmp_path)
    options = TranslationSettings.of(job.config).search
    assert run_readme(tmp_path)[0] == search(job, options, [job.example])[0] + "\n"


def test_a_loss_too_great_is_refused(here: Path, run: RunDir) -> None:
    """The references are the model's own translations, and int8 changes some."""
    write(here / "src", lines_of(run.text_file("valid", "source")))
    opened = open_model(run.model, EngineChoice(compute_type="float32"))
    write(here / "ref", opened.translator.best(lines_of(here / "src"), opened.settings.search))
    given = ["--model", "run", "--output", "out", "--source", "src", "--reference", "ref"]
    output = refusal("ctranslate2", *given, "--quantization", "int8", "--max-loss", "0", cwd=here)
    assert re.search(r"int8 loses .* \(100\.00 to .* --max-loss", output)
    done = mt("export", "ctranslate2", *given, "--quantization", "int8", "--max-loss", "100", cwd=here)
    assert "100.00" in done.stdout
    mt("export", "ctranslate2", *given, "--max-loss", "0", "--force", cwd=here)  # float32 loses nothing


def test_without_text_only_float32_is_exported(run: RunDir, tmp_path: Path) -> None:
    shutil.copytree(run.model.root, tmp_path / "moved")
    for quantization in ("int8", "float16"):
        given = ["--model", "moved", "--output", "out", "--quantization", quantization]
        assert "no validation set beside this model" in refusal("ctranslate2", *given, cwd=tmp_path)
    assert "no validation set" in refusal("argos", "--model", "moved", "--output", "out", cwd=tmp_path)
    output = mt("export", "ctranslate2", "--model", "moved", "--output", "out", cwd=tmp_path).stdout
    assert output.startswith("CTranslate2 agrees with the model")
    assert output.endswith("\nctranslate2: out\n")


def test_a_wrong_conversion_is_noticed_without_text(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run.model.root, tmp_path / "moved")
    convert = to_ctranslate2.write_converted

    def other(model: Transformer, *arguments: Any) -> None:
        changed = copy.deepcopy(model)
        with torch.no_grad():
            changed.output.weight.mul_(1.01)
        convert(changed, *arguments)

    monkeypatch.setattr(to_ctranslate2, "write_converted", other)
    error = export_in_process(tmp_path / "moved", tmp_path / "out")
    assert "CTranslate2 does not agree with the model" in str(error)
    assert not (tmp_path / "out").exists()


def test_the_loss_is_relative_to_the_model_without_shortlist_and_preprocessing(tmp_path: Path) -> None:
    """The export has neither."""
    few = Shortlist([EOS_ID, 262, 263], {})
    learned = Preprocessing(Casing(("dog", "runs", "over", "the", "grass"), (True, True), False))
    run = run_folder(tmp_path / "run", *WIDE, "decoding.shortlist=1", shortlist=few, preprocessing=learned)
    shouted = [line.upper() for line in lines_of(run.text_file("valid", "source"))]
    whole = open_model(run.model, EngineChoice("torch", "cpu")).translator
    exact = dataclasses.replace(whole, preprocessing=NO_PREPROCESSING)
    search = TranslationSettings.of(load_config(run.config)).search
    found = reference_translator(run.model).best(shouted, search)
    assert found == exact.best(shouted, search) != whole.best(shouted, search)


@pytest.mark.slow
def test_only_the_models_own_language_tags_are_exported(two_languages: Path, tmp_path: Path) -> None:
    for path in two_languages.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "runs").symlink_to(two_languages / "runs")
    own = "{source: SPLIT.en, target: SPLIT.yy}"
    changes = ["data.target_lang=yy", "data.test=null", "training.max_steps=2", "training.init_from=runs/two"]
    changes.append("name=own")
    changes += [f"data.{split}={own.replace('SPLIT', split)}" for split in ("train", "valid")]
    mt("train", "--config", "two.yaml", "--runs", "own", *(w for c in changes for w in ("--set", c)), cwd=tmp_path)
    for wanted in ("ctranslate2", "huggingface", "onnx"):
        mt("export", wanted, "--model", "own/own", "--output", wanted, cwd=tmp_path)
        readme = (tmp_path / wanted / "README.md").read_text()
        assert "<2xx>" not in readme
        assert ("<2yy>" in readme) == (wanted != "onnx")
    assert list(json.loads((tmp_path / "onnx" / "config.json").read_text())["tags"]) == ["yy"]
    output = mt("export", "argos", "--model", "own/own", "--output", "argos", cwd=tmp_path, code=2).stderr
    assert "needs the tag <2yy> before each text" in output


@pytest.mark.parametrize(
    ("number", "ignored", "code"),
    [(signal.SIGTERM, False, 143), (signal.SIGHUP, False, 129), (signal.SIGTERM, True, 143)],
    ids=["SIGTERM", "SIGHUP", "nohup"],
)
def test_a_terminated_export_leaves_nothing(tmp_path: Path, number: int, ignored: bool, code: int) -> None:
    program = """
import sys, time
from pathlib import Path
from mt import cli
from mt.storage import atomic
from mt.storage.manifest import verify
@cli.app.command()
def hang():
    with atomic.new_folder(Path("a/out")):
        print("inside", flush=True)
        time.sleep(60)
sys.argv = ["mt", "hang"]
cli.main()
"""
    command = [sys.executable, "-c", program]
    if ignored:
        command = ["/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"inside\n"
    if ignored:
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
    process.send_signal(number)
    assert process.wait(30) == code
    assert list((tmp_path / "a").iterdir()) == []


def test_the_models_own_number_format_is_the_default(tmp_path: Path) -> None:
    run_folder(tmp_path / "run", "decoding.compute_type=int8", *WIDE)
    assert "CTranslate2, int8" in exported(tmp_path, "--max-loss", "100")


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tflite"], "'tflite' is not an export format"),
        (["huggingface", "--quantization", "int8"], "--quantization is for ctranslate2 and argos, not for huggingface"),
        (["onnx", "--max-loss", "1"], "--max-loss is for ctranslate2 and argos, not for onnx"),
        (["ctranslate2", "--quantization", "int4"], "--quantization: 'int4' is not one of float32, float16, int8"),
        (["ctranslate2", "--max-loss", "nan"], "--max-loss nan must be a number of BLEU points"),
        (["argos", "--max-loss", "-1"], "--max-loss -1.0 must be a number of BLEU points"),
        (["ctranslate2", "--source", "x"], "source and reference go together"),
        (["ctranslate2", "--to", "de"], "--to and --from say which languages --reference and"),
        (["ctranslate2", "--from", "zz"], "--to and --from say which languages --reference and"),
        (["ctranslate2", "--model", "nowhere"], "nowhere: there is no such folder"),
        (["ctranslate2", "--to", "fr", "--source", "x", "--reference", "x"], "the model translates into de"),
    ],
    ids=str,
)
def test_refusals(here: Path, arguments: list[str], sentence: str) -> None:
    given = arguments if "--model" in arguments else [*arguments, "--model", "run"]
    assert refusal(*given, "--output", "out", cwd=here).startswith(f"mt: {sentence}")


def test_the_help_names_the_default_limit(tmp_path: Path) -> None:
    assert f"default: {exporting.MAX_LOSS}." in " ".join(mt("export", "--help", cwd=tmp_path).stdout.split())


def test_other_files_are_not_replaced(here: Path) -> None:
    (here / "folder").mkdir()
    for path in (here / "file", here / "folder" / "mine"):
        path.write_text("mine")
    for name, options, sentence in (
        ("file", [], "this is a file, not a folder"),
        ("file", ["--force"], "this is a file, not a folder"),
        ("folder", [], "not made by `mt export`"),
        ("folder", ["--force"], "not made by `mt export`"),
        ("run", ["--force"], "this folder is or holds the input run"),
        ("run/model", ["--force"], "this folder is or holds the input run/model"),
        (".", ["--force"], "this folder is or holds the current directory"),
        ("run/model/more", [], "this is inside the model's own folder"),
        ("o\udcff", [], "this path is not UTF-8"),
    ):
        given = ["--model", "run", "--output", name, *options]
        assert sentence in refusal("ctranslate2", *given, cwd=here)
    assert (here / "folder" / "mine").read_text() == "mine"


def test_an_empty_folder_is_filled_and_an_earlier_export_replaced(here: Path) -> None:
    (here / "out").mkdir()
    exported(here)
    assert "this folder is not empty" in refusal("ctranslate2", "--model", "run", "--output", "out", cwd=here)
    (here / "out" / "README.md").write_text("stale")
    exported(here, "--force")
    verify(here / "out")


def test_force_deletes_nothing_but_the_earlier_export(here: Path, run: RunDir) -> None:
    exported(here)
    out = here / "out"
    shutil.copytree(run.root, out / "run")
    (out / "link").symlink_to(here / "run")
    text = ["--source", "out/README.md", "--reference", "out/README.md"]
    for model, cwd, output, options, sentence in (
        ("out/run", here, "out", [], "holds the input out/run/model"),
        ("out/run/model", here, "out", [], "holds the input out/run/model"),
        (here / "run", out / "run", "..", [], "holds the current directory"),
        ("run", here, "out", [], "link, run/config.yaml, run/data/text/valid.source would be lost"),
        ("run", here, "out", text, "holds the input out/README.md"),
    ):
        given = ["--model", model, "--output", output, "--force", *options]
        assert sentence in refusal("ctranslate2", *given, cwd=cwd)
        verify(out)
        verify(out / "run" / "model")


@pytest.mark.parametrize(
    ("wanted", "package"),
    [("huggingface", "transformers"), ("onnx", "onnxscript"), ("onnx", "onnxruntime"), ("argos", "sentencepiece")],
)
def test_a_missing_package_is_named(here: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    error = export_in_process(here / "run", here / "out", wanted)
    assert isinstance(error, InputError)
    assert f"needs a package that is not installed ({package})" in error.message
    assert "pip install 'mt-train[export]'" in error.hint
    assert not (here / "out").exists()


@pytest.mark.parametrize("command", ["export", "import"])
def test_files_that_appear_meanwhile_are_not_replaced(
    here: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    marian(here / "theirs")
    write_output = {
        "import": lambda: mt_api.import_model(here / "theirs", here / "out", force=True),
        "export": lambda: mt_api.export("ctranslate2", here / "out", here / "run", force=True),
    }[command]

    def appear(action: str, path: Path) -> None:
        if MANIFEST in path.name and path.parent.name == ".out.partial":  # written last
            (here / "out").mkdir(exist_ok=True)
            (here / "out" / "notes.txt").write_text("mine")

    monkeypatch.setattr(atomic, "failpoint", appear)
    with pytest.raises(InputError, match="this folder exists and was not made by"):
        write_output()
    assert [path.name for path in (here / "out").iterdir()] == ["notes.txt"]
    assert not (here / ".out.partial").exists()


@pytest.mark.parametrize("licence", ["cc-by-4.0", "[mit, apache-2.0]"])
def test_an_imported_model_keeps_its_licence_and_origin(tmp_path: Path, licence: str) -> None:
    marian(tmp_path / "theirs")
    (tmp_path / "theirs" / "README.md").write_text(f"---\nlicense: {licence}\n---\n# OPUS\n")
    mt_api.import_model(tmp_path / "theirs", tmp_path / "ours")
    for wanted in ("huggingface", "ctranslate2"):
        mt_api.export(wanted, tmp_path / wanted, tmp_path / "ours")
        mt_api.import_model(tmp_path / wanted, tmp_path / f"{wanted}-again")
        card = (tmp_path / wanted / "README.md").read_text()
        assert f"imported from {tmp_path / 'theirs'} by `mt`. Its licence is {licence.strip('[]')}. Exported" in card
        assert "spelling" not in card
        assert "usual case" not in card
        again = (tmp_path / f"{wanted}-again" / "README.md").read_text()
        for text in (card, again):
            assert yaml.safe_load(text.split("---\n")[1])["license"] == yaml.safe_load(licence)


# Interruptions --------------------------------------------------------------------------------------------------------


def test_a_failure_leaves_no_folder_and_the_next_export_works(here: Path) -> None:
    places = here / "places"
    mt(*COMMAND, cwd=here, **{FAILPOINT: f"count:{places}"})
    count = len(places.read_text().splitlines())
    shutil.rmtree(here / "out")
    for place, kind in ((0, "ENOSPC"), (count // 2, "SIGKILL"), (count - 2, "EIO")):
        done = mt(*COMMAND, cwd=here, code=None, **{FAILPOINT: f"{place}:{kind}"})
        assert done.code == (-signal.SIGKILL if kind == "SIGKILL" else 4), done.stderr
        assert not (here / "out").exists()
        exported(here)
        verify(here / "out")
        assert not list(here.glob("*.partial")) + list(here.glob(".*.partial"))
        shutil.rmtree(here / "out")
