"""Export to Argos Translate: its parts, and with Argos Translate itself in a slow test."""

import functools
import json
import os
import random
import re
import subprocess
import sys
import unicodedata
import zipfile
from pathlib import Path

import ctranslate2
import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from command import mt
from conftest import CONFIG, write_corpus
from engine_helpers import ENGLISH, GERMAN, tokenizers
from export_helpers import VALID, lines_of, refusal, run_folder, translating_job, write
from mt.bundle.load_translator import open_model
from mt.data.tokenizer import BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.extras.export.argos import write_argos
from mt.extras.export.sentence_ends import sentence_ends_model
from mt.extras.export.sentencepiece import count_differences, sentencepiece_model
from mt.storage.run_dir import RunDir

ARGOS = "argostranslate==1.11.0"
SEARCH = SearchOptions(beam_size=4, length_penalty=0.2, max_length=256, scores=False)
ODD = [
    *("", "a  b", "1,234.50 € (no)!?", "</s> <pad> <0x41> <unk>", "☃ 日本 ß", "DON'T--stop", "\tx\t"),
    "e\u0301 A\u030a 각",
]


def babble(seed: int, letters: str = "abcde") -> list[str]:
    """Return words in which nearly all neighbours can merge, so that the order of merges matters."""
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(8)) for _ in range(60)]


@pytest.fixture(scope="module")
def pairs() -> list[TokenizerPair]:
    """Tokenizers with a shared vocabulary and with separate ones."""
    source, target = [*ENGLISH, *babble(1)], [*GERMAN, *babble(2, "cdefg")]
    return [TokenizerPair.train(source, target, 400 + 60 * shared, shared) for shared in (True, False)]


# SentencePiece --------------------------------------------------------------------------------------------------------


def test_sentencepiece_encodes_and_decodes_as_the_tokenizers(pairs: list[TokenizerPair]) -> None:
    for pair in pairs:
        content = sentencepiece_model(pair)
        theirs = SentencePieceProcessor(model_proto=content)
        for text in (*ENGLISH, *GERMAN, *ODD, *babble(3, "abcdefg")):
            ids = pair.source.encode(text)
            assert theirs.encode(text.strip(), out_type=str) == pair.source.tokens(ids)
            ids = pair.target.encode(text)
            assert theirs.decode_pieces(pair.target.tokens(ids)) == pair.target.decode(ids)
        assert count_differences(content, pair, [*ENGLISH, *ODD], [*GERMAN, *ODD]) == 0


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="▁\ue000", exclude_categories=["Cc", "Cn"]), max_size=12)
)
def test_any_text(text: str) -> None:
    """Except unsorted combining marks, which a table of replacements cannot sort."""
    pair = tokenizers(False)
    theirs = _processor()
    sorted_marks = unicodedata.normalize("NFD", text).strip()
    for form in (sorted_marks, unicodedata.normalize("NFC", text).strip()):
        if sum(unicodedata.combining(character) > 0 for character in form) == 0:
            assert theirs.encode(form, out_type=str) == pair.source.tokens(pair.source.encode(form))


@functools.cache
def _processor() -> SentencePieceProcessor:
    return SentencePieceProcessor(model_proto=sentencepiece_model(tokenizers(False)))


def test_differences_are_counted(pairs: list[TokenizerPair]) -> None:
    """SentencePiece reads a literal ▁ as a space; and another order of merges changes the pieces."""
    pair = pairs[0]
    content = sentencepiece_model(pair)
    assert count_differences(content, pair, ["a▁b", "a b"], ["a b"]) == 1
    assert count_differences(content, pair, [], ["a▁b", "a b"]) == 1
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(content)
    for piece in model.pieces:
        piece.score = -piece.score
    assert count_differences(model.SerializeToString(), pair, babble(4), []) > 50


def test_a_literal_tag_is_text() -> None:
    tagged = BpeTokenizer.train(ENGLISH, 320, ["de"])
    content = sentencepiece_model(TokenizerPair(tagged, tagged))
    assert count_differences(content, TokenizerPair(tagged, tagged), ["<2de> A dog."], ["<2de> A dog."]) == 0


# The sentence splitter ------------------------------------------------------------------------------------------------


class Splitter:
    """MiniSBD's inference, in short."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(sentence_ends_model())
        self._session = onnxruntime.InferenceSession(path)
        facts = self._session.get_modelmeta().custom_metadata_map
        self._numbers = json.loads(facts["vocab"])["_unit2id"]
        assert json.loads(facts["config"])["feat_funcs"] == ["end_of_para"]

    def sentences(self, text: str) -> list[str]:
        units = [self._numbers.get(character, self._numbers["<UNK>"]) for character in text] + [self._numbers["<PAD>"]]
        inputs = {"units": np.array([units]), "features": np.zeros((1, len(units), 1), np.float32)}
        [labels] = self._session.run(None, inputs)
        assert labels.shape == (1, len(units), 5)
        best = labels[0].argmax(axis=1)
        assert set(best.tolist()) <= {0, 2}
        ends = [place + 1 for place, label in enumerate(best[:-1]) if label == 2]
        parts = [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
        return [part.strip() for part in parts if part.strip()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there. How are you?  I am fine!", ["Hello there.", "How are you?", "I am fine!"]),
        ("Dr. Smith came home. He sat.", ["Dr. Smith came home.", "He sat."]),
        ("The man ran. He sat.", ["The man ran. He sat."]),
        ('She said "No." Then she left.', ['She said "No."', "Then she left."]),
        ("你好。我很好！是吗", ["你好。", "我很好！", "是吗"]),
        ("3.14 is a number.", ["3.14 is a number."]),
        ("So… well", ["So…", "well"]),
        ("A-be. C", ["A-be. C"]),
        ("no end", ["no end"]),
    ],
)
def test_the_graph_splits_sentences(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert Splitter(tmp_path / "ends.onnx").sentences(text) == expected


# The package ----------------------------------------------------------------------------------------------------------


def unpacked(folder: Path) -> Path:
    """Unpack a package as Argos Translate does."""
    [package] = folder.glob("*.argosmodel")
    with zipfile.ZipFile(package) as file:
        file.extractall(folder / "installed")
    return folder / "installed" / package.stem


def argos_translates(package: Path, lines: list[str]) -> list[str]:
    """Translate with the calls of Argos Translate."""
    pieces = SentencePieceProcessor(model_file=str(package / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(package / "model"), compute_type="float32")
    found = translator.translate_batch(
        [pieces.encode(line, out_type=str) for line in lines],
        replace_unknowns=True,
        max_batch_size=32,
        batch_type="tokens",
        beam_size=4,
        num_hypotheses=1,
        length_penalty=0.2,
        return_scores=True,
    )
    return [pieces.decode_pieces(one.hypotheses[0]).replace("▁", " ").replace("_", " ") for one in found]


@pytest.mark.parametrize("shape", [["tokenizer.shared=false"], ["model.positions=learned"]], ids=" ".join)
def test_a_package(tmp_path: Path, shape: list[str]) -> None:
    run = run_folder(tmp_path / "run", *shape)
    given = ["--model", "run", "--output", "out", "--quantization", "float32", "--max-loss", "100"]
    done = mt("export", "argos", *given, cwd=tmp_path)
    assert "SentencePiece differs from the model's tokenizer on 0 of 22 lines" in done.stdout
    assert "Argos Translate, float32" in done.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"MANIFEST.json", "README.md", "translate-en_de-1_0.argosmodel"}
    package = unpacked(tmp_path / "out")
    assert {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()} >= {
        *("metadata.json", "README.md", "sentencepiece.model", "minisbd/sentence_ends.onnx"),
        *("model/model.bin", "model/config.json"),
    }
    metadata = json.loads((package / "metadata.json").read_text())
    assert (metadata["from_code"], metadata["from_name"]) == ("en", "English")
    assert (metadata["to_code"], metadata["to_name"]) == ("de", "German")
    opened = open_model(run.model, EngineChoice(compute_type="float32"))
    assert argos_translates(package, VALID) == opened.translator.best(VALID, SEARCH)


@pytest.mark.parametrize("positions", ["learned", pytest.param("sinusoidal", marks=pytest.mark.slow)])
def test_no_text_is_too_long(tmp_path: Path, positions: str) -> None:
    """CTranslate2 truncates a source to 1,024 pieces and a translation to 256, and fails with fewer positions."""
    job = translating_job(f"model.positions={positions}", "data.max_length=40")
    write_argos(job, tmp_path, "")
    [found] = argos_translates(unpacked(tmp_path), ["men " * 3000])
    assert isinstance(found, str)


def test_int8_is_the_default_and_its_loss_is_bounded(tmp_path: Path) -> None:
    wide = ["model.d_model=32", "model.d_ff=64", "model.positions=learned", "evaluation.bleu_tokenize=char"]
    run = run_folder(tmp_path / "run", *wide)
    opened = open_model(run.model, EngineChoice(compute_type="float32"))
    write(tmp_path / "src", VALID)
    write(tmp_path / "ref", opened.translator.best(VALID, SEARCH))
    given = ["--model", "run", "--output", "out", "--source", "src", "--reference", "ref"]
    output = refusal("argos", *given, "--max-loss", "0", cwd=tmp_path)
    assert re.search(r"Argos Translate, int8 loses .* \(100\.00 to ", output)
    done = mt("export", "argos", *given, "--max-loss", "100", cwd=tmp_path)
    assert "Argos Translate, int8" in done.stdout


# Argos Translate itself -----------------------------------------------------------------------------------------------

WITH_ARGOS = """
import json, sys
from argostranslate import package, translate
package.install_from_path(sys.argv[1])
source, target = (next(one for one in translate.get_installed_languages() if one.code == c) for c in ("en", "xx"))
lines = sys.stdin.read().split("\\n")
print(json.dumps([source.get_translation(target).translate(line) for line in lines]))
"""


@pytest.fixture(scope="session")
def argos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Argos Translate in its own environment."""
    folder = tmp_path_factory.mktemp("argos")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    constraints = Path(__file__).resolve().parent.parent.parent.parent / "constraints.txt"
    [torch] = re.findall(r"^torch==.*$", constraints.read_text(), re.MULTILINE)
    command = [folder / "bin" / "pip", "install", "--quiet", "--retries", "1", ARGOS, torch]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    if done.returncode != 0:
        pytest.skip(f"Argos Translate cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    return folder / "bin" / "python"


@pytest.mark.slow
def test_argos_translate_installs_it_and_translates_as_mt_does(argos: Path, tmp_path: Path) -> None:
    """With a trained model, and without network: the proxies are unreachable."""
    write_corpus(tmp_path)
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    settings = ["model.d_model=32", "model.d_ff=64", "training.max_tokens=800", "training.learning_rate=5.0e-3"]
    settings += ["training.max_steps=300", "training.validate_every=100", "training.warmup_steps=30"]
    mt("train", "--config", "tiny.yaml", *(f"--set={setting}" for setting in settings), cwd=tmp_path)
    mt("export", "argos", "--output", "out", "--quantization", "float32", "--max-loss", "100", cwd=tmp_path)
    run = RunDir(tmp_path / "runs" / "tiny")
    [package] = (tmp_path / "out").glob("*.argosmodel")
    lines = lines_of(run.text_file("valid", "source"))
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    homes = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("DATA", "CONFIG", "CACHE")}
    done = subprocess.run(
        [argos, "-c", WITH_ARGOS, package],
        input="\n".join([*lines, "", "a b c! d e f?"]),
        capture_output=True,
        text=True,
        env={**os.environ, **nowhere, **homes, "PYTHONPATH": "", "ARGOS_COMPUTE_TYPE": "float32"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    *found, nothing, two = json.loads(done.stdout.splitlines()[-1])
    translator = open_model(run.model, EngineChoice(compute_type="float32")).translator
    assert len(set(found)) > 3
    assert found == translator.best(lines, SEARCH)
    assert nothing == ""
    assert two == " ".join(translator.best(["a b c!", "d e f?"], SEARCH))
