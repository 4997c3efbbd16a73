"""`mt score`: forced decoding of aligned lines."""

import json
import math
import os
import threading
from pathlib import Path

import pytest
import sentencepiece
import torch

from command import mt
from config_helpers import SMALLEST
from model_helpers import DECODER_ONLY, small_model
from mt.bundle.load_translator import open_model
from mt.config import parse_config
from mt.data.sentence_format import NO_TAGS
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import EOS_ID, SOS_ID, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding import scoring
from mt.decoding.engine import EngineChoice
from mt.decoding.scoring import forced_score, score_pairs
from mt.decoding.settings import TranslationSettings
from mt.storage.run_dir import ModelDir
from mt.text.lines import read_parallel

FILES = ("--source", "test.en", "--target", "test.xx")


def alone(model, tokenizers: TokenizerPair, source: str, target: str, tag: list[int]) -> float:
    tokens = torch.tensor([[SOS_ID, *tag, *tokenizers.source.encode(source), EOS_ID]])
    return forced_score(model, tokens, [tokenizers.target.encode(target)])[0]


def test_each_line_has_the_log_probability_of_its_pair(trained: Path) -> None:
    done = mt("score", *FILES, cwd=trained)
    opened = open_model(ModelDir(trained / "runs" / "tiny" / "model"), EngineChoice(engine="torch"))
    pairs = list(read_parallel(trained / "test.en", trained / "test.xx"))
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == len(pairs) > 10
    for (source, target), (log_prob, tokens) in zip(pairs, rows, strict=True):
        assert float(log_prob) == pytest.approx(alone(opened.model, opened.tokenizers, source, target, []), abs=2e-4)
        assert int(tokens) == len(opened.tokenizers.target.encode(target)) + 1
    total = sum(float(log_prob) for log_prob, _ in rows), sum(int(tokens) for _, tokens in rows)
    assert f"{total[1]:,} tokens: perplexity {math.exp(-total[0] / total[1]):.2f}" in done.stderr


def test_scores_equal_the_log_probabilities_of_translate(two_languages: Path, tmp_path: Path) -> None:
    command = ["translate", "--to", "xx", "--input", "valid.en", "--format", "jsonl"]
    translated = [json.loads(line) for line in mt(*command, cwd=two_languages).stdout.splitlines()]
    expected = {each["source"]: each["n_best"][0]["log_prob"] for each in translated}
    for side, key in (("en", "source"), ("xx", "translation")):
        (tmp_path / side).write_text("".join(f"{each[key]}\n" for each in translated))
    files = ("--source", tmp_path / "en", "--target", tmp_path / "xx")
    mt("score", *files, "--to", "xx", "--format", "jsonl", "--output", tmp_path / "scored", cwd=two_languages)
    scored = [json.loads(line) for line in (tmp_path / "scored").read_text().splitlines()]
    assert [each["source"] for each in scored] == [each["source"] for each in translated]
    # Where a model spells a word in other pieces than the tokenizer, the probabilities differ.
    same = [math.isclose(each["log_prob"], expected[each["source"]], abs_tol=1e-3) for each in scored]
    assert sum(same) > len(same) / 2


def test_a_model_of_several_languages_is_asked_for_one(two_languages: Path) -> None:
    files = ("--source", "valid.en", "--target", "valid.en")
    model = two_languages / "runs" / "two"
    done = mt("score", *files, "--model", model, cwd=two_languages, code=2)
    assert "--to" in done.stderr
    opened = open_model(ModelDir(model / "model"), EngineChoice(engine="torch"))
    lines = (two_languages / "valid.en").read_text().splitlines()
    for lang in ("xx", "yy"):
        found = mt("score", *files, "--model", model, "--to", lang, cwd=two_languages).stdout.splitlines()
        tag = [opened.tokenizers.source.tags[lang]]
        expected = [alone(opened.model, opened.tokenizers, line, line, tag) for line in lines]
        assert [float(line.split("\t")[0]) for line in found] == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("shape", [{}, DECODER_ONLY[1]], ids=["encoder_decoder", "decoder_only"])
def test_pairs_longer_than_the_models_limit_have_no_score(shape: dict) -> None:
    tokenizer = BpeTokenizer.train(["a b c", "d e f"], 300)
    both, vocab = TokenizerPair(tokenizer, tokenizer), tokenizer.vocab_size
    model = small_model(vocab=vocab, max_length=8, **{**shape, "positions": "learned"})
    config = parse_config(SMALLEST, "x.yaml", ["data.max_length=8", "decoding.max_length=7"])
    pairs = [("a", "b"), ("a " * 9, "b"), ("a", "b " * 9), ("", "a"), ("a b c d e f", "f e d c b a"), ("b", "a")]
    found = score_pairs(model, both, NO_TAGS, TranslationSettings.of(config), pairs)
    assert [each is None for each in found] == [False, True, True, True, False, False]
    for (source, target), scored in zip(pairs, found, strict=True):
        if scored is not None:
            assert scored.log_prob == pytest.approx(alone(model, both, source, target, []), abs=1e-4)


def test_a_target_with_unknown_characters_has_no_score(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b c\nd e f\n" * 9)
    options = {"vocab_size": 14, "minloglevel": 2, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), **options)
    tokenizer = SentencePieceTokenizer.from_files(tmp_path / "m.model")
    model, settings = small_model(vocab=tokenizer.vocab_size), TranslationSettings.of(parse_config(SMALLEST, "x.yaml"))
    pairs, both = [("a b", "d e"), ("a b", "d Ω"), ("a Ω", "d e")], TokenizerPair(tokenizer, tokenizer)
    known, unknown, source = score_pairs(model, both, NO_TAGS, settings, pairs)
    assert known is not None
    assert unknown is None
    assert source is not None


def test_batches_side_by_side_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = BpeTokenizer.train(["a b c", "d e f"], 300)
    both = TokenizerPair(tokenizer, tokenizer)
    model, settings = small_model(vocab=tokenizer.vocab_size), TranslationSettings.of(parse_config(SMALLEST, "x.yaml"))
    pairs = [("a b " * (1 + i % 7), "c d " * (1 + i % 5)) for i in range(60)]
    expected = [alone(model, both, *pair, []) for pair in pairs]
    names = set()
    original = scoring.forced_score

    def noted(*arguments) -> list[float]:
        names.add(threading.current_thread().name)
        return original(*arguments)

    monkeypatch.setattr(scoring, "forced_score", noted)
    monkeypatch.setattr(scoring, "CPU_TOKENS", 40)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = score_pairs(model, both, NO_TAGS, settings, pairs)
    finally:
        torch.set_num_threads(before)
    assert [each.log_prob for each in found if each] == pytest.approx(expected, abs=1e-4)
    assert threading.current_thread().name not in names


@pytest.mark.parametrize(("source", "name"), [("a", "a"), ("a", "b"), ("a", "link"), ("a", "hard"), ("pipe", "out")])
def test_an_input_is_not_overwritten_and_no_pipe(trained: Path, tmp_path: Path, source: str, name: str) -> None:
    """A pipe is empty when read again, so nothing would be scored."""
    for file in "ab":
        (tmp_path / file).write_text("a b\n")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "hard").hardlink_to(tmp_path / "b")
    os.mkfifo(tmp_path / "pipe")
    message = "pipe: a pipe, not a file" if source == "pipe" else "this is an input"
    for sides in ((source, "b"), ("b", source)):
        files = zip(("--source", "--target", "--output"), (*sides, name), strict=True)
        words = [word for option, file in files for word in (option, tmp_path / file)]
        assert message in mt("score", *words, cwd=trained, code=2).stderr
    assert [(tmp_path / file).read_text() for file in "ab"] == ["a b\n"] * 2
    assert (tmp_path / "hard").samefile(tmp_path / "b")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "test.en", "--target", "train.xx"], "test.en has 12 lines but train.xx has 300"),
        (["--source", "test.en", "--target", "gone"], "gone: no such file"),
        ([*FILES, "--format", "xml"], "'--format': 'xml' is not one of"),
        ([*FILES, "--device", "tpu"], "--device: 'tpu' is not one of"),
    ],
)
def test_errors_are_one_sentence(trained: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    done = mt("score", *arguments, "--output", tmp_path / "out", cwd=trained, code=2)
    assert message in done.stderr
    assert not (tmp_path / "out").exists()
