"""Export to ONNX Runtime: the same logits for batches and lengths of any size."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from command import mt
from engine_helpers import ENGLISH, sentences
from export_helpers import padded, random_job, readme_program, run_folder, run_readme
from mt.bundle.load_translator import open_model
from mt.bundle.model_folder import load_model
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import SearchOptions
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError
from mt.extras.export.common import ExportJob
from mt.extras.export.onnx import _decoding_config, write_onnx
from mt.extras.export.onnx_graph import DecoderGraph, EncoderGraph
from mt.storage.run_dir import RunDir

SHAPES = [
    [f"model.norm={norm}", f"model.positions={positions}", f"model.activation={activation}", *others]
    for (norm, positions, activation), others in zip(
        product(("pre", "post"), ("sinusoidal", "learned"), ("relu", "gelu", "swiglu")),
        4
        * [
            ["tokenizer.shared=true", "model.bias=false"],
            ["tokenizer.shared=false", "model.attention_bias=false"],
            ["tokenizer.shared=false", "model.tie_embeddings=false"],
        ],
        strict=True,
    )
]
SHAPES.insert(0, ["model.norm=pre", "model.positions=rotary"])
BATCHES = [([7, 1, 12], [9, 9, 9]), ([5], [4]), ([1], [0]), ([38, 3], [11, 11])]


def tokens_of(job: ExportJob, lengths: list[int], target_lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    pair = job.tokenizers
    sources = padded(sentences(lengths, pair.source.vocab_size))
    return sources, padded(sentences(target_lengths, pair.target.vocab_size, seed=1))


@pytest.mark.parametrize(
    "shape",
    [*SHAPES[::2], *(pytest.param(shape, marks=pytest.mark.slow) for shape in SHAPES[1::2])],
    ids=lambda changes: "-".join(change.split("=")[1] for change in changes),
)
def test_the_graphs_agree_with_the_model(shape: list[str]) -> None:
    job = random_job(*shape, "model.encoder_layers=2", "model.decoder_layers=2")
    positions = TranslationSettings.of(job.config).max_positions
    encoder, decoder = EncoderGraph(job.model, positions), DecoderGraph(job.model, positions)
    for lengths in BATCHES:
        sources, targets = tokens_of(job, *lengths)
        with torch.no_grad():
            memory, expected = encoder(sources), job.model(sources, targets)
            cache = memory.new_zeros(len(memory), len(sources), *memory.shape[2:3], 0, memory.shape[4])
            for place in range(targets.shape[1]):
                logits, cache = decoder(targets[:, place], sources, memory, cache)
                assert torch.allclose(logits, expected[:, place], atol=1e-4)


def check_folder(folder: Path, job: ExportJob) -> None:
    """Run an export with only ONNX Runtime and numpy."""
    write_onnx(job, folder, "# A model\n")
    for name in ("encoder.onnx", "decoder.onnx"):
        onnx.checker.check_model(folder / name, full_check=True)
        assert b".py" not in (folder / name).read_bytes(), "a path of this machine"
    config = json.loads((folder / "config.json").read_text())
    encoder, decoder = (onnxruntime.InferenceSession(folder / f"{part}.onnx") for part in ("encoder", "decoder"))
    for lengths in BATCHES:
        sources, targets = (tokens.numpy() for tokens in tokens_of(job, *lengths))
        with torch.no_grad():
            expected = job.model(torch.from_numpy(sources), torch.from_numpy(targets)).numpy()
        [memory] = encoder.run(None, {"src_tokens": sources})
        shape = (2 * config["decoder_layers"], len(sources), config["heads"], 0, config["head_width"])
        cache = np.zeros(shape, np.float32)
        for place in range(targets.shape[1]):
            inputs = {"tokens": targets[:, place], "src_tokens": sources, "memory": memory, "cache": cache}
            logits, cache = decoder.run(None, inputs)
            assert np.abs(logits - expected[:, place]).max() < 1e-4


@pytest.mark.slow
def test_a_folder(tmp_path: Path) -> None:
    check_folder(tmp_path, random_job("model.norm=pre", "model.activation=swiglu", "tokenizer.shared=false"))
    assert {path.name for path in tmp_path.iterdir()} == {
        *("README.md", "config.json", "encoder.onnx", "decoder.onnx", "source.json", "target.json")
    }


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda changes: "-".join(change.split("=")[1] for change in changes))
def test_a_folder_of_every_shape(tmp_path: Path, shape: list[str]) -> None:
    check_folder(tmp_path, random_job(*shape, "model.encoder_layers=2", "model.decoder_layers=2"))


@pytest.mark.slow
def test_the_readme_program_agrees_with_greedy_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_folder(tmp_path / "run", "model.positions=learned", "decoding.min_length=0")
    done = mt("export", "onnx", "--model", "run", "--output", "out", cwd=tmp_path)
    assert "ONNX Runtime agrees with the model" in done.stdout
    program = readme_program(tmp_path / "out")
    assert len([line for line in program.splitlines() if line.strip()]) <= 30
    monkeypatch.chdir(tmp_path / "out")
    output, names = run_readme(tmp_path / "out")
    opened = open_model(run.model)
    greedy = SearchOptions(1, max_length=12)
    assert output == f"{opened.translator.best(['the dog'], greedy)}\n"
    lines = run.text_file("valid", "source").read_text().split("\n")[:-1]
    assert names["translate"](lines) == opened.translator.best(lines, greedy)


def test_tokenizers_of_different_kinds_are_refused(tmp_path: Path) -> None:
    job = random_job("tokenizer.shared=false")
    source = SentencePieceTokenizer.train(ENGLISH, 300, (), "bpe")
    job = replace(job, tokenizers=TokenizerPair(source, job.tokenizers.target))
    with pytest.raises(
        InputError, match=r"tokenizer\.source_file, tokenizer\.target_file: one is a SentencePiece model"
    ):
        write_onnx(job, tmp_path, "")


def test_the_config_for_decoding_programs(two_languages: Path, tmp_path: Path) -> None:
    folder = RunDir(two_languages / "runs" / "two").model
    loaded = load_model(folder, torch.device("cpu"))
    facts = _decoding_config(ExportJob(folder, loaded.config, loaded.model, loaded.tokenizers, []))
    assert facts["tags"].keys() == {"xx", "yy"}
    assert (facts["pad"], facts["sos"], facts["eos"]) == (PAD_ID, SOS_ID, EOS_ID)
    assert (facts["source_lang"], list(facts["target_lang"])) == ("en", ["xx", "yy"])
    assert (facts["max_source_tokens"], facts["max_target_tokens"]) == (40, 12)
