"""Conversion to CTranslate2: both engines agree in every shape that the configuration allows."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from engine_helpers import (
    PUSHABLE,
    Twins,
    both_find,
    configured,
    ending_model,
    endless_model,
    fast_log_probs,
    random_model,
    sentences,
    token_log_probs,
    tokenizers,
    twins,
)
from mt.bundle.converted_file import check_converted
from mt.bundle.to_ctranslate2 import convert
from mt.data.sentence_format import SOURCE_FORMATS
from mt.data.tokenizer import SOS_ID
from mt.decoding.attention_weights import attention_weights
from mt.decoding.engine import Hypothesis, SearchOptions
from mt.decoding.settings import TranslationSettings
from mt.decoding.translator import Translator
from mt.storage.run_dir import ModelDir

CHOICES = {
    "model.activation": ("relu", "gelu", "swiglu"),
    "model.norm": ("pre", "post"),
    "model.positions": ("sinusoidal", "learned"),
    "model.tie_embeddings": ("true", "false"),
    "tokenizer.shared": ("true", "false"),
    "model.bias": ("true", "false"),
}
SHAPES = [
    [f"{key}={value}" for key, value in zip(CHOICES, values, strict=True)] for values in product(*CHOICES.values())
]
SHAPES += [
    [f"model.bias={one}", f"model.attention_bias={other}"] for one, other in (("true", "false"), ("false", "true"))
]
SHAPES += [
    ["model.activation=silu", "model.output_bias=true"],
    ["model.positions=rotary", "model.norm=pre", "model.n_heads=4"],
    ["model.positions=rotary", "model.norm=post", "tokenizer.shared=false", "model.embedding_norm=true"],
    ["model.embedding_norm=true", "model.norm=pre", "model.output_bias=true", "tokenizer.shared=false"],
    ["model.embedding_norm=true", "model.bias=false", "model.scale_embeddings=false"],
]


def deep(number: int) -> list[str]:
    """Alternate two layers on one side and one on the other."""
    return [f"model.encoder_layers={1 + number % 2}", f"model.decoder_layers={2 - number % 2}"]


def assert_same_probabilities(both: Twins, tolerance: float = 1e-4) -> None:
    """Compare the probability of every token of given translations, for sources of different lengths."""
    engine = both.fast()
    sources = sentences([7, 1, 12], both.tokenizers.source.vocab_size)
    targets = sentences([9, 14, 0], both.tokenizers.target.vocab_size, seed=1)
    for source, target in zip(sources, targets, strict=True):
        expected = token_log_probs(both.model, source, target)
        assert fast_log_probs(engine, both, source, target) == pytest.approx(expected, abs=tolerance)


def _is_fast(shape: list[str]) -> bool:
    """Return True for an orthogonal array of the shapes, in which every two values meet."""
    if len(shape) < len(CHOICES):
        return True
    pre, sinusoidal, tied, shared, bias = (
        value == values[0]
        for value, values in zip((s.split("=")[1] for s in shape[1:]), list(CHOICES.values())[1:], strict=True)
    )
    return tied == (pre != sinusoidal) and shared == (pre != bias)


def _as_test(number: int) -> object:
    name = "-".join(setting.split("=")[1] for setting in SHAPES[number])
    return pytest.param(number, id=name, marks=[] if _is_fast(SHAPES[number]) else [pytest.mark.slow])


@pytest.mark.parametrize("number", [_as_test(number) for number in range(len(SHAPES))])
def test_every_shape(tmp_path: Path, number: int) -> None:
    shape = [*SHAPES[number], *deep(number)]
    options = SearchOptions(beam_size=3, n_best=2, max_length=12)
    pair = tokenizers("tokenizer.shared=true" in shape)
    ids = sentences([7, 2, 4], pair.source.vocab_size)
    both = twins(tmp_path, *shape, model=lambda config: ending_model(config, ids, options))
    for number_format in ("float32", "int8"):  # as a model that is loaded is checked
        sizes = (tokenizer.vocab_size for tokenizer in (both.tokenizers.source, both.tokenizers.target))
        check_converted(both.folder.converted(number_format) / "model.bin", *sizes)
    assert_same_probabilities(both)
    found = both_find(both, ids, options)
    assert all(len(hypotheses) == 2 for hypotheses in found)


@pytest.mark.parametrize("source_format", SOURCE_FORMATS)
def test_every_source_format_and_a_first_token(tmp_path: Path, source_format: str) -> None:
    """The attention has a column for each token of the sentence and its tags, whatever is around them."""
    options = SearchOptions(beam_size=3, n_best=2, max_length=12)
    ids = sentences([7, 2, 4], 300)
    both = twins(
        tmp_path, f"model.source_format={source_format}", model=lambda config: ending_model(config, ids, options)
    )
    without = both_find(both, ids, options)
    found = both_find(both, ids, options, [[50]] * 3)
    assert {h.ids[0] for hypotheses in found for h in hypotheses} == {50} != {h[0].ids[:1] == [50] for h in without}
    [fast], [slow] = (
        engine.translate(ids[:1], replace(options, attention=True))[0][:1] for engine in (both.fast(), both.slow())
    )
    assert torch.tensor(fast.attention)[: len(fast.ids)].shape == (len(fast.ids), 7)
    assert torch.allclose(
        torch.tensor(fast.attention)[: len(fast.ids)], torch.tensor(slow.attention)[: len(fast.ids)], atol=1e-5
    )


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("source_format", ["text </s>", "text </s> lang"])
def test_the_length_bound_is_the_same_for_every_source_format(
    tmp_path: Path, source_format: str, beam_size: int
) -> None:
    both = twins(tmp_path, f"model.source_format={source_format}")
    options = SearchOptions(beam_size=beam_size)
    prefix = [50] * (options.longest(1 + 2, None) - 1)
    [[found, *_]] = both_find(both, [[7]], options, [prefix])
    assert found.ids[: len(prefix)] == prefix


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    "shape",
    [
        ["model.d_model=1", "model.n_heads=1", "model.positions=learned"],
        ["model.d_model=2", "model.n_heads=1"],
        ["model.d_model=6", "model.n_heads=3"],
        ["model.d_model=4", "model.n_heads=1"],
        ["model.d_model=4", "model.n_heads=4"],
        ["model.d_model=16", "model.n_heads=1"],
        ["model.d_model=5", "model.n_heads=5", "model.positions=learned"],
        ["model.d_ff=1"],
        ["model.d_ff=1", "model.activation=swiglu"],
        ["model.d_ff=77"],
        ["model.encoder_layers=6", "model.decoder_layers=1"],
        ["model.encoder_layers=1", "model.decoder_layers=6"],
        ["data.max_length=3", "training.max_tokens=3", "decoding.max_length=40"],
    ],
    ids=" ".join,
)
def test_odd_sizes(tmp_path: Path, shape: list[str], norm: str) -> None:
    both = twins(tmp_path, *shape, f"model.norm={norm}")
    # Normalising two numbers nearly divides by zero, which amplifies rounding errors.
    assert_same_probabilities(both, tolerance=1e-3 if both.config.model.d_model <= 2 else 1e-4)
    assert both.fast().translate([[5, 6]], SearchOptions(2, max_length=3))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_epsilon_of_the_norms(tmp_path: Path, norm: str) -> None:
    """It matters for tiny numbers."""

    def tiny(config):
        model = random_model(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" not in name and name != "output.weight":
                    parameter.mul_(0.002)
        return model

    assert_same_probabilities(twins(tmp_path, "model.positions=learned", f"model.norm={norm}", model=tiny))


@pytest.mark.parametrize("tied", ["true", "false"])
@pytest.mark.parametrize("shape", [[], ["model.activation=swiglu", "model.norm=pre"]], ids=["paper", "modern"])
def test_int8_is_close(tmp_path: Path, shape: list[str], tied: str) -> None:
    changes = [*shape, f"model.tie_embeddings={tied}", "model.d_model=32", *deep(0)]
    both = twins(tmp_path, *changes, model=lambda config: random_model(config, std=0.1))
    exact, rounded = both.fast(), both.fast("int8")
    size = {kind: (both.folder.converted(kind) / "model.bin").stat().st_size for kind in ("float32", "int8")}
    assert size["int8"] < 0.7 * size["float32"]
    ids = sentences([7, 1, 12, 30], both.tokenizers.source.vocab_size)
    targets = sentences([9, 14, 1, 20], both.tokenizers.target.vocab_size, seed=1)
    off = []
    for source, target in zip(ids, targets, strict=True):
        pairs = (fast_log_probs(engine, both, source, target) for engine in (exact, rounded))
        off += [abs(one - other) for one, other in zip(*pairs, strict=True)]
    # Without VNNI instructions, pairs of int8 products are added in 16 bits, which saturate.
    mean, most = (0.02, 0.2) if "vnni" in Path("/proc/cpuinfo").read_text() else (0.1, 0.8)
    assert 1e-5 < sum(off) / len(off) < mean
    assert max(off) < most
    for hypotheses in rounded.translate(ids, SearchOptions(3, 2, max_length=10)):
        assert len(hypotheses) == 2
        assert all(h.log_prob < 0 for h in hypotheses)


def test_conversion_stores_tied_matrices_once_and_does_not_change_the_model(tmp_path: Path) -> None:
    """The library quantizes in place."""
    sizes = []
    for tied in ("true", "false"):
        shape = ["model.d_model=64", "model.d_ff=8", "model.activation=swiglu"]
        config, folder = configured(f"model.tie_embeddings={tied}", *shape), ModelDir(tmp_path / tied)
        model = random_model(config)
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        convert(model, config, tokenizers(True), folder)
        after = dict(model.named_parameters())
        assert before.keys() == after.keys()
        assert all(after[name].equal(before[name]) and after[name].dtype == torch.float32 for name in before)
        sizes.append(sum(path.stat().st_size for path in folder.root.rglob("model.bin")))
    assert sizes[0] < 0.7 * sizes[1]


# Lengths ------------------------------------------------------------------------------------------------------------


def found_for(folder: Path, ids: list[list[int]], *changes: str) -> list[list[Hypothesis]]:
    both = twins(folder, *PUSHABLE, *changes, model=endless_model)
    ratio = both.config.decoding.max_length_ratio
    options = SearchOptions(2, max_length=both.config.longest_translation, max_length_ratio=ratio)
    return both_find(both, ids, options)


@pytest.mark.parametrize(("max_length", "ratio"), [(90, "20"), (300, "3"), (7, "3")])
def test_sinusoidal_positions_reach_as_far_as_a_translation_can(tmp_path: Path, max_length: int, ratio: str) -> None:
    """Also far beyond the longest source, in a batch of the longest source and a short one."""
    ids = sentences([38, 3], 300)
    changes = [f"decoding.max_length={max_length}", f"decoding.max_length_ratio={ratio}"]
    [long], [short] = found_for(tmp_path, ids, *changes)
    assert len(long.ids) == min(max_length, 40 * int(ratio) + 10)
    assert len(short.ids) == min(max_length, 5 * int(ratio) + 10)


def test_learned_positions_end_where_the_table_ends(tmp_path: Path) -> None:
    [long], [short] = found_for(tmp_path, sentences([38, 3], 300), "model.positions=learned")
    assert len(long.ids) == 39
    assert len(short.ids) == 25


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_the_last_positions_are_correct(tmp_path: Path, positions: str) -> None:
    both = twins(tmp_path, f"model.positions={positions}", "decoding.max_length=60")
    [source] = sentences([38], both.tokenizers.source.vocab_size)
    [target] = sentences([39 if positions == "learned" else 60], both.tokenizers.target.vocab_size, seed=1)
    expected = token_log_probs(both.model, source, target)
    assert fast_log_probs(both.fast(), both, source, target) == pytest.approx(expected, abs=1e-4)


def test_a_minimum_length_needs_positions_too(tmp_path: Path) -> None:
    options = SearchOptions(2, min_length=70, max_length=70, max_length_ratio=0.1)
    changes = ["decoding.min_length=70", "decoding.max_length=70", "decoding.max_length_ratio=0.1"]
    both = twins(tmp_path, *PUSHABLE, *changes, model=endless_model)
    for [hypothesis] in both_find(both, sentences([3, 8], 300), options):
        assert len(hypothesis.ids) == 70


def test_a_source_is_between_sos_and_eos(tmp_path: Path) -> None:
    """The library adds them, once."""
    both = twins(tmp_path)
    [source] = sentences([5], 300)
    expected = token_log_probs(both.model, source, [7, 8])
    assert fast_log_probs(both.fast(), both, source, [7, 8]) == pytest.approx(expected, abs=1e-4)
    for other in (source[1:], source[:-1], [SOS_ID, *source]):
        assert token_log_probs(both.model, other, [7, 8]) != pytest.approx(expected, abs=1e-3)


def test_a_guided_model_aligns_with_one_head_a_position_later(tmp_path: Path) -> None:
    options = SearchOptions(beam_size=3, max_length=12, attention=True)
    changes = "training.guided_alignment=0.1", "model.decoder_layers=3"
    ids = sentences([7, 2, 4], 300)
    both = twins(tmp_path, *changes, model=lambda config: ending_model(config, ids, options))
    ids = ids[0]
    [[fast]], [[slow]] = (engine.translate([ids], options) for engine in (both.fast(), both.slow()))
    assert fast.ids == slow.ids
    assert torch.allclose(torch.tensor(fast.attention), torch.tensor(slow.attention), atol=1e-5)
    head = attention_weights(both.model, ids, slow.ids)[1, 0, :, 1:-1]
    assert torch.allclose(torch.tensor(slow.attention), head, atol=1e-5)
    settings = TranslationSettings.read(both.folder.settings)
    assert settings.guided
    line = both.tokenizers.source.decode(ids)
    for engine in (both.fast(), both.slow()):
        rows = [
            Translator(engine, both.tokenizers, replace(settings, guided=guided)).translate([line], options)[0][0]
            for guided in (False, True)
        ]
        assert rows[0].parts[0].attention is not None
        assert rows[1].parts[0].attention == rows[0].parts[0].attention[1:]
