"""Export of models with SentencePiece tokenizers to transformers and ONNX Runtime, and their way back."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianTokenizer

import mt as mt_api
from engine_helpers import ENGLISH, GERMAN, configured
from export_helpers import run_readme
from import_helpers import TEXT, marian, scrambled, sentencepiece, write_json
from mt.bundle.load_translator import open_model
from mt.bundle.model_folder import build_model, load_model, new_model
from mt.data.sentence_format import framed
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.extras.export.exporting import export
from mt.extras.export.onnx import _SENTENCEPIECE
from mt.storage.run_dir import ModelDir

LINES = [*ENGLISH, "The dog!", "Old  grass ☃.", "é 日本"]
LITERAL = "Two <pad> and </s> and <0x41> and <unk>"  # a model without bytes knows neither < nor >


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def trained_pair(folder: Path, kind: str, shared: bool, tags: tuple[str, ...] = ()) -> TokenizerPair:
    """Tokenizers as training makes them."""
    if shared:
        tokenizer = SentencePieceTokenizer.train(TEXT, 340, tags, kind)
        return TokenizerPair(tokenizer, tokenizer)
    return TokenizerPair(*(SentencePieceTokenizer.train(text, 310, (), kind) for text in (ENGLISH, GERMAN)))


def given_pair(folder: Path, kind: str) -> TokenizerPair:
    sentencepiece(folder, "spm.model", kind=kind, size=90)
    tokenizer = SentencePieceTokenizer.from_files(folder / "spm.model")
    return TokenizerPair(tokenizer, tokenizer)


def folder_of_ours(root: Path, pair: TokenizerPair, *changes: str) -> ModelDir:
    config = configured("decoding.max_length=12", f"tokenizer.shared={str(pair.shared).lower()}", *changes)
    model = scrambled(build_model(config, pair))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with new_model(ModelDir(root), config, pair, weights, {}):
        pass
    return ModelDir(root)


def imported(root: Path, **changes: Any) -> ModelDir:
    marian(root.with_name("theirs"), **changes)
    mt_api.import_model(root.with_name("theirs"), root, target_langs=changes.get("tags", ()))
    return ModelDir(root)


MARIAN_FORM = "model.source_format=text </s>"
KINDS: dict[str, Callable[[Path], ModelDir]] = {
    "marian": lambda root: imported(root),
    "marian-separate": lambda root: imported(root, separate=True),
    "marian-separate-untied": lambda root: imported(root, separate=True, tie_word_embeddings=False),
    "marian-tags": lambda root: imported(root, tags=("deu", "fra")),
    "own-marian-form": lambda root: folder_of_ours(root, trained_pair(root, "unigram", True), MARIAN_FORM),
    "unigram": lambda root: folder_of_ours(root, trained_pair(root, "unigram", True)),
    "unigram-tags": lambda root: folder_of_ours(root, trained_pair(root, "unigram", True, ("de",))),
    "unigram-separate-pre": lambda root: folder_of_ours(
        root, trained_pair(root, "unigram", False), "model.norm=pre", "model.positions=learned"
    ),
    "bpe": lambda root: folder_of_ours(root, trained_pair(root, "bpe", True)),
    "bpe-separate-untied": lambda root: folder_of_ours(
        root, trained_pair(root, "bpe", False), "model.tie_embeddings=false"
    ),
    "given-unigram": lambda root: folder_of_ours(root, given_pair(root.with_name("spm"), "unigram")),
    "given-bpe": lambda root: folder_of_ours(root, given_pair(root.with_name("spm"), "bpe"), "model.norm=pre"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_translates_as_the_model_does_and_the_model_comes_back(kind: str, tmp_path: Path) -> None:
    ours, out = KINDS[kind](tmp_path / "ours"), tmp_path / "out"
    done = export(ours, "huggingface", out, [])
    assert "logits differ by at most" in done
    theirs, opened = AutoTokenizer.from_pretrained(out), open_model(ours, EngineChoice("torch"))
    assert isinstance(theirs, MarianTokenizer) == ("marian" in kind)
    translator = opened.translator.to(opened.settings.target_langs[0])
    tags, form = translator.tags, opened.settings.source_format
    mark = "" if not tags.before else ">>deu<<" if kind == "marian-tags" else "<2de> "
    for line in LINES if "given" in kind else [*LINES, LITERAL]:
        ids = framed(tags.source(opened.tokenizers.source.encode(line)), form)
        assert theirs(f"{mark}{line}")["input_ids"] == ids
    options = SearchOptions(1, 1, max_length=12, max_length_ratio=100.0)
    batch = theirs([f"{mark}{line}" for line in ENGLISH], return_tensors="pt", padding=True)
    model = AutoModelForSeq2SeqLM.from_pretrained(out).eval()
    found = model.generate(**batch, num_beams=1, max_new_tokens=13)[:, 1:].tolist()
    results = translator.translate(ENGLISH, options)
    target = opened.tokenizers.target
    shift = 0 if "marian" in kind else model.config.vocab_size - target.vocab_size
    for row, result in zip(found, results, strict=True):
        expected = [shift + i for i in result[0].parts[0].target]
        assert row[: len(expected)] == expected
    ids = target.encode(GERMAN[0])
    assert theirs.decode([shift + i for i in ids]) == target.decode(ids)

    mt_api.import_model(out, tmp_path / "again")
    before, after = (load_model(folder, torch.device("cpu")) for folder in (ours, ModelDir(tmp_path / "again")))
    assert after.config == before.config
    assert after.tokenizers.files() == before.tokenizers.files()
    weights = [dict(loaded.model.named_parameters()) for loaded in (before, after)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_marian_folder_without_ours_is_imported_as_any(tmp_path: Path) -> None:
    """The files of transformers alone give the same model."""
    ours = imported(tmp_path / "ours")
    export(ours, "huggingface", tmp_path / "out", [])
    for path in (tmp_path / "out" / "mt" / "tokenizer").iterdir():
        path.unlink()
    (tmp_path / "out" / "mt" / "tokenizer").rmdir()
    (tmp_path / "out" / "mt" / "config.yaml").unlink()
    (tmp_path / "out" / "mt").rmdir()
    mt_api.import_model(tmp_path / "out", tmp_path / "again")
    before, after = (open_model(ModelDir(tmp_path / name), EngineChoice("torch")) for name in ("ours", "again"))
    ids = [opened.tokenizers.source.encode(ENGLISH[0]) for opened in (before, after)]
    pieces = [opened.tokenizers.source.tokens(each) for opened, each in zip((before, after), ids, strict=True)]
    assert pieces[0] == pieces[1]
    options = SearchOptions(5, 1, max_length=12)
    found = [opened.translator.translate(ENGLISH, options) for opened in (before, after)]
    scores = [[result[0].score for result in results] for results in found]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["marian-tags", "marian-separate", "bpe-separate-untied", "unigram"])
def test_onnx_translates_as_the_model_does(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = KINDS[kind](tmp_path / "ours")
    assert "ONNX Runtime agrees" in export(ours, "onnx", tmp_path / "out", [])
    monkeypatch.chdir(tmp_path / "out")
    _, names = run_readme(tmp_path / "out")
    opened = open_model(ours, EngineChoice("torch"))
    translator = opened.translator.to(opened.settings.target_langs[0])
    longest = names["config"]["max_target_tokens"]
    expected = translator.best(LINES, SearchOptions(1, 1, max_length=longest, max_length_ratio=100.0))
    assert names["translate"](list(map(translator.plain, LINES))) == expected


def test_the_readme_of_onnx_reads_pieces_as_utf_8_in_every_locale(tmp_path: Path) -> None:
    """As on Windows, where files are opened in another encoding."""
    for side in ("source", "target"):
        write_json(tmp_path / f"{side}_pieces.json", {"▁é": 4})
    [line] = [line for line in _SENTENCEPIECE["OPENED"].splitlines() if "pieces.json" in line]
    command = [sys.executable, "-c", f"import json\n{line}\nassert ids_of == {{chr(0x2581) + chr(233): 4}}"]
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(command, cwd=tmp_path, env=os.environ | locale, check=True)
