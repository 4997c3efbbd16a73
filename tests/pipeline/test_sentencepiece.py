"""SentencePiece tokenizers from training to translation, exports and resume, through the command line."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer

from command import mt
from conftest import into, made_once
from export_helpers import run_readme
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer_kinds import TokenizerPair, read_tokenizer
from resume_helpers import overrides, run_of, train

LINES = ["a b c d", "j i h", "c", "e f g h i j"]


@pytest.fixture(scope="module")
def unigram_run(two_languages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two languages with a vocabulary for each side, so that ids differ, and the tags are the source's."""

    def make(folder: Path) -> None:
        for path in two_languages.glob("*.*"):
            shutil.copy(path, folder)
        kind = ("tokenizer.type=unigram", "tokenizer.shared=false", "decoding.shortlist=4")
        changes = (*kind, "training.schedule=cosine", "training.optimizer=muon", "training.max_steps=400")
        mt("train", "--config", "two.yaml", *overrides(changes), cwd=folder)

    return made_once(tmp_path_factory, "unigram", make)


def translate(folder: Path, *options: str, lines: list[str] = LINES) -> list[str]:
    stdin = "".join(f"{line}\n" for line in lines).encode()
    return mt("translate", *options, cwd=folder, stdin=stdin).stdout.splitlines()


@pytest.mark.parametrize("language", ["xx", "yy"])
def test_both_engines_int8_and_shortlists_translate(unigram_run: Path, language: str) -> None:
    expected = [into(language, line) for line in LINES]
    assert translate(unigram_run, "--to", language, "--engine", "torch") == expected
    for options in (["float32"], ["int8"], ["float32", "--shortlist"], ["int8", "--shortlist"]):
        found = translate(unigram_run, "--to", language, "--compute-type", *options)
        if "int8" in options:  # sums saturate on processors without VNNI, which costs so small a model some letters
            letters = list(zip("\n".join(found), "\n".join(expected), strict=True))
            assert sum(own == other for own, other in letters) > 0.9 * len(letters)
        else:
            assert found == expected
    [aligned] = translate(unigram_run, "--to", language, "--alignment", lines=["a b c d"])
    assert [pair.split("-")[1] for pair in aligned.split(" ||| ")[1].split()] == ["0", "1", "2", "3"]


def test_the_sides_have_bytes_at_different_ids(unigram_run: Path) -> None:
    pair = TokenizerPair.load(unigram_run / "runs" / "two" / "tokenizer", shared=False)
    assert pair.source.tags.keys() == {"xx", "yy"}
    assert pair.target.tags == {}
    assert pair.source.byte_ids.start == pair.target.byte_ids.start + 2
    map_file = unigram_run / "runs" / "two" / "model" / "ctranslate2" / "float32" / "vmap.txt"
    copied = dict(line.split("\t") for line in map_file.read_text().splitlines())
    assert copied["<0x41>"] == "<0x41>"


def test_the_export_for_ctranslate2_is_used_with_the_library_alone(
    unigram_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mt("export", "ctranslate2", "--output", tmp_path / "out", cwd=unigram_run)
    monkeypatch.chdir(tmp_path / "out")
    output, names = run_readme(tmp_path / "out")
    sentence = names["source"].decode(names["pieces"][1:])
    assert output == f"{into('xx', sentence)}\n"


def test_a_file_that_another_run_made_is_given(unigram_run: Path, tiny: Path) -> None:
    tokenizer = read_tokenizer(unigram_run / "runs" / "two" / "tokenizer" / "target.json")
    (tiny / "given.json").write_text(tokenizer.to_json())
    for name, content in (("given.json", tokenizer.to_json().encode()), ("spm.model", tokenizer.models[0])):
        (tiny / name).write_bytes(content)
        train(tiny, f"tokenizer.file={name}", f"name={name[:5]}", "training.max_steps=4", "decoding.shortlist=5")
        assert (tiny / "runs" / name[:5] / "tokenizer" / "tokenizer.json").read_text() == tokenizer.to_json()
        mt("export", "argos", "--model", f"runs/{name[:5]}", "--max-loss", "99", "--output", f"{name}.a", cwd=tiny)


@pytest.fixture
def write_model(tiny: Path) -> Callable[..., None]:
    def write(name: str, vocab_size: int) -> None:
        content = io.BytesIO()
        text = (tiny / "train.en").read_text() + (tiny / "train.xx").read_text()
        SentencePieceTrainer.train(
            sentence_iterator=iter(text.splitlines()), model_writer=content, vocab_size=vocab_size, model_type="char"
        )
        (tiny / name).write_bytes(content.getvalue())

    return write


def test_a_resume_with_another_file_is_refused(tiny: Path, write_model: Callable[..., None]) -> None:
    write_model("spm.model", 22)
    changes = ("tokenizer.file=spm.model", "training.max_steps=8")
    train(tiny, *changes)
    assert "trained" not in train(tiny, *changes).stderr
    (tiny / "spm.model").rename(tiny / "moved.model")
    [own] = set(run_of(tiny).tokenizer.glob("tokenizer*"))
    for place in ("moved.model", own):  # or the copy in the run
        assert "trained" not in train(tiny, f"tokenizer.file={place}", changes[1]).stderr
    write_model("spm.model", 24)
    for options in ([], ["--dry-run"]):
        words = ["train", "--config", "tiny.yaml", *overrides(changes), *options]
        refusal = mt(*words, cwd=tiny, code=2).stderr
        assert "tokenizer: the checkpoints were trained with another one" in refusal
    assert run_of(tiny).checkpoint_steps()


def test_two_files_are_two_vocabularies(tiny: Path, write_model: Callable[..., None]) -> None:
    write_model("a.model", 22)
    write_model("b.model", 24)
    files = ("tokenizer.source_file=a.model", "tokenizer.target_file=b.model", "tokenizer.shared=false")
    done = train(tiny, *files, "training.max_steps=2")
    sizes = [t.vocab_size for t in TokenizerPair.load(run_of(tiny).tokenizer, shared=False)]
    assert sizes[1] > sizes[0]
    assert f"vocabulary: {sizes[0]} source and {sizes[1]} target pieces" in done.stderr


def test_planning_and_checking_use_the_given_file(tiny: Path, write_model: Callable[..., None]) -> None:
    write_model("spm.model", 22)
    options = ("--config", "tiny.yaml", *overrides(["tokenizer.file=spm.model"]))
    size = SentencePieceTokenizer.from_files(tiny / "spm.model").vocab_size
    assert f"tokenizer        {size} pieces\n" in mt("train", *options, "--dry-run", cwd=tiny).stdout
    mt("data", "check", *options, cwd=tiny, code=None)
    missing = ("--config", "tiny.yaml", *overrides(["tokenizer.file=none.model"]))
    assert "none.model: no such file" in mt("train", *missing, cwd=tiny, code=2).stderr
    assert not (tiny / "runs" / "tiny" / "data").exists()


def test_training_goes_on_from_a_unigram_model_with_its_tokenizer(unigram_run: Path) -> None:
    changes = ["training.init_from=runs/two", "tokenizer.shared=false", "name=next", "training.max_steps=2"]
    mt("train", "--config", "two.yaml", *overrides(changes), cwd=unigram_run)
    files = [TokenizerPair.load(unigram_run / "runs" / n / "tokenizer", shared=False).files() for n in ("two", "next")]
    assert files[0] == files[1]
