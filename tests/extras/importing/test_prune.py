"""`mt import --prune`: smaller vocabularies that split text, and translate, as the whole ones do."""

import gzip
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mt as mt_api
from command import mt
from engine_helpers import ENGLISH, GERMAN, SHAPE, configured, whole_folder
from import_helpers import TEXT, m2m_100, marian, mbart, nllb, scrambled, sentencepiece, teach
from mt.bundle.load_translator import OpenedModel, open_model
from mt.bundle.model_folder import build_model, new_model
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import SPECIALS, UNK_ID
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError
from mt.extras.importing.huggingface import read_plan
from mt.extras.importing.pruning import Pruned, prune
from mt.storage.run_dir import ModelDir
from mt.text.casing import Casing
from mt.text.preprocessing import Preprocessing
from mt.text.spelling import Spelling

CORPUS = [ENGLISH[0], GERMAN[0]]
FAMILIES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "marian": (marian, {}),
    "marian-separate-vocabularies": (partial(marian, separate=True), {}),
    "m2m_100": (m2m_100, {"source_lang": "en", "target_langs": ["de"]}),
    "nllb": (nllb, {"source_lang": "eng_Latn", "target_langs": ["deu_Latn"]}),
    "mbart": (mbart, {"source_lang": "en_XX", "target_langs": ["de_DE"]}),
}


def written(folder: Path, lines: list[str] = CORPUS, name: str = "corpus.txt") -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def opened(folder: Path) -> OpenedModel:
    return open_model(ModelDir(folder), EngineChoice("torch"))


def parameters(model: Any) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


SLOW = ("marian-separate-vocabularies", "m2m_100", "nllb", "mbart")


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FAMILIES]
)
def test_translations_without_pruned_pieces_are_identical(family: str, tmp_path: Path) -> None:
    make, languages = FAMILIES[family]
    theirs = make(tmp_path / "theirs")
    sources = [languages["source_lang"]] if "source_lang" in languages else []
    plan = read_plan(tmp_path / "theirs", "x", (sources, languages.get("target_langs", ())))
    teach(theirs, tmp_path / "theirs", plan, steps=120)
    mt_api.import_model(tmp_path / "theirs", tmp_path / "whole", **languages)
    mt_api.import_model(tmp_path / "theirs", tmp_path / "small", **languages, prune=[written(tmp_path)])
    whole, small = opened(tmp_path / "whole"), opened(tmp_path / "small")
    before, after = whole.tokenizers, small.tokenizers
    assert after.target.vocab_size < before.target.vocab_size
    assert after.source.tags.keys() == before.source.tags.keys()
    names = set(after.target.pieces)
    options = SearchOptions(1, 1, max_length=12)
    lines = [" ".join(random.Random(seed).choices(CORPUS[0].split(), k=1 + seed % 4)) for seed in range(60)]
    found = [[result[0] for result in each.translator.translate(lines, options)] for each in (whole, small)]
    compared = 0
    for one, other in zip(*found, strict=True):
        pieces = before.target.tokens(one.parts[0].target)
        if names.issuperset(pieces):
            assert after.target.tokens(other.parts[0].target) == pieces
            assert other.text == one.text
            compared += 1
    assert compared > 10
    fast = open_model(ModelDir(tmp_path / "small"), EngineChoice("ctranslate2", compute_type="float32"))
    assert [result[0].text for result in fast.translator.translate(lines, options)] == [one.text for one in found[1]]


def test_rows_are_those_of_the_kept_pieces(tmp_path: Path) -> None:
    marian(tmp_path / "theirs", separate=True)
    mt_api.import_model(tmp_path / "theirs", tmp_path / "whole")
    mt_api.import_model(tmp_path / "theirs", tmp_path / "small", prune=[written(tmp_path)])
    whole, small = opened(tmp_path / "whole"), opened(tmp_path / "small")
    old, new = parameters(whole.model), parameters(small.model)
    assert old.keys() == new.keys()
    sides = {"source_embedding.tokens.weight": 0, "target_embedding.tokens.weight": 1, "output.bias": 1}
    for name, tensor in new.items():
        expected = old[name]
        if name in sides:
            before, after = (each.tokenizers[sides[name]] for each in (whole, small))
            rows = {piece: row for row, piece in enumerate(before.pieces)}
            expected = expected[[rows[piece] for piece in after.pieces]]
            assert len(tensor) < len(old[name])
        assert torch.equal(tensor, expected)


# Segmentation ---------------------------------------------------------------------------------------------------------


def pruned(
    tmp_path: Path, kind: str, corpus: list[str], size: int = 120, text: list[str] = TEXT
) -> tuple[SentencePieceTokenizer, Pruned]:
    sentencepiece(tmp_path, "spm.model", text, size, kind)
    tokenizer = SentencePieceTokenizer.from_files(tmp_path / "spm.model", tags={"de": "<2de>"})
    pair = TokenizerPair(tokenizer, tokenizer)
    return tokenizer, prune(configured(), pair, [written(tmp_path, corpus)])


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_corpus_is_split_as_before(kind: str, tmp_path: Path) -> None:
    before, result = pruned(tmp_path, kind, CORPUS)
    after = result.tokenizers.source
    assert (result.lines, result.unchanged) == (2, 2)
    assert after.vocab_size < before.vocab_size
    for line in CORPUS:
        assert after.tokens(after.encode(line)) == before.tokens(before.encode(line))
    assert after.tokens(after.tags.values()) == ["<2de>"]
    needed = {piece for line in CORPUS for piece in before.tokens(before.encode(line))}
    others = {p for p in after.tokens(range(len(SPECIALS), after.vocab_size)) if len(p) > 1} - needed - {"<2de>"}
    assert len(others) <= (2 if kind == "unigram" else 40)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_other_text_becomes_no_more_unknown(kind: str, tmp_path: Path) -> None:
    before, result = pruned(tmp_path, kind, CORPUS)
    after = result.tokenizers.source
    for line in (*TEXT, "Two dogs ☃ on 日本 hills", "Ä house"):
        assert after.decode(after.encode(line)) == before.decode(before.encode(line))
        assert after.encode(line).count(UNK_ID) == before.encode(line).count(UNK_ID)


def test_merges_keep_their_intermediate_pieces(tmp_path: Path) -> None:
    """A piece of four letters is made of pieces of two that no sentence needs as such."""
    before, result = pruned(tmp_path, "bpe", ["watering"], text=[*TEXT, *["watering wet water later"] * 5])
    long = max(before.tokens(before.encode("watering")), key=len)
    assert len(long) >= 4
    after = result.tokenizers.source
    assert result.unchanged == 1
    assert long in after.tokens(after.encode("watering"))
    assert after.vocab_size < before.vocab_size - 10


def test_characters_only_in_longer_pieces_and_scores_of_unknown_text_remain(tmp_path: Path) -> None:
    from sentencepiece import sentencepiece_model_pb2

    sentencepiece(tmp_path, "spm.model", TEXT, 120)
    model = sentencepiece_model_pb2.ModelProto.FromString((tmp_path / "spm.model").read_bytes())
    lonely = next(piece for piece in model.pieces if len(piece.piece) > 2 and piece.type == piece.NORMAL)
    lonely.piece = "▁ğa"
    worst = min((p for p in model.pieces if len(p.piece) > 1 and p.type == p.NORMAL), key=lambda p: p.score)
    worst.score = -99.0
    (tmp_path / "spm.model").write_bytes(model.SerializeToString())
    tokenizer = SentencePieceTokenizer.from_files(tmp_path / "spm.model")
    small = prune(configured(), TokenizerPair(tokenizer, tokenizer), [written(tmp_path)]).tokenizers.source
    assert UNK_ID not in small.encode("ğa")
    assert worst.piece in small.pieces


def test_files_of_one_language_are_read_by_its_tokenizer_only(tmp_path: Path) -> None:
    marian(tmp_path / "theirs", separate=True)
    plan = read_plan(tmp_path / "theirs", "x", ((), ()))
    english = written(tmp_path, ENGLISH[:1], "train.en")
    results = []
    for name in ("more.de.gz", "more.txt"):
        path = written(tmp_path, ENGLISH[1:], name.removesuffix(".gz"))
        if name.endswith(".gz"):
            path = tmp_path / name
            path.write_bytes(gzip.compress((tmp_path / "more.de").read_bytes()))
        results.append(prune(plan.config, plan.tokenizers, [english, path]))
    of_german, of_both = results
    assert (of_german.lines, of_both.lines) == (3, 5)
    assert len(of_german.source_ids) < len(of_both.source_ids)
    assert len(of_german.target_ids) == len(of_both.target_ids)


@pytest.mark.parametrize("names", [["a.en"], ["a.de"], ["a.en", "empty.de"], ["empty"]])
@pytest.mark.parametrize("is_shared", [True, False])
def test_text_of_both_sides_is_needed(names: list[str], is_shared: bool, tmp_path: Path) -> None:
    tokenizers = [SentencePieceTokenizer.train(text, 310, (), "bpe") for text in (ENGLISH, GERMAN)]
    pair = TokenizerPair(tokenizers[0], tokenizers[0 if is_shared else 1])
    files = [written(tmp_path, [] if "empty" in name else ENGLISH, name) for name in names]
    lacking = "de" if "a.en" in names else "en"
    with pytest.raises(InputError, match=rf"--prune .*: no text of {lacking}, whose pieces would be lost"):
        prune(configured("data.source_lang=en", "data.target_lang=de"), pair, files)


# The command ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["ours", "ours/model"])  # a model folder and a run folder
def test_the_command_prunes_folders_of_ours(folder: str, tmp_path: Path) -> None:
    tokenizer = SentencePieceTokenizer.train(TEXT, 380, model_type="bpe")
    config, pair = configured("decoding.shortlist=20"), TokenizerPair(tokenizer, tokenizer)
    model = scrambled(build_model(config, pair))
    learned = Preprocessing(Casing(("dog",), (True, True), False), Spelling(("dog",), 1))
    with new_model(ModelDir(tmp_path / folder), config, pair, parameters(model), {}, preprocessing=learned):
        pass
    written(tmp_path)
    message = "ours: this is a model of mt already"
    assert message in mt("import", "ours", "--output", "small", cwd=tmp_path, code=2).stderr
    done = mt("import", "ours", "--prune", "corpus.txt", "--output", "small", cwd=tmp_path)
    small = opened(tmp_path / "small")
    pieces = small.tokenizers.target.vocab_size
    assert 260 < pieces < tokenizer.vocab_size
    expected = f"{pieces} of {tokenizer.vocab_size} pieces remain, and 0.0 of 0.0 MB of weights; 100.00% of 2 lines"
    assert expected in done.stdout
    assert small.translator.preprocessing == learned
    assert mt("translate", "--model", "small", ENGLISH[0], cwd=tmp_path).stdout.endswith("\n")


def test_what_cannot_be_pruned_is_refused(tmp_path: Path) -> None:
    whole_folder(tmp_path / "bpe", *SHAPE)
    corpus = written(tmp_path)
    with pytest.raises(InputError, match="tokenizer is not SentencePiece"):
        mt_api.import_model(tmp_path / "bpe", tmp_path / "out", prune=[corpus])
    marian(tmp_path / "theirs")
    with pytest.raises(InputError, match=r"nothing\.txt: no such file"):
        mt_api.import_model(tmp_path / "theirs", tmp_path / "out", prune=[tmp_path / "nothing.txt"])
    sentencepiece(tmp_path, "words.model", kind="word", size=20)
    tokenizer = SentencePieceTokenizer.from_files(tmp_path / "words.model")
    with pytest.raises(InputError, match="words or characters"):
        prune(configured(), TokenizerPair(tokenizer, tokenizer), [corpus])
    assert not (tmp_path / "out").exists()
