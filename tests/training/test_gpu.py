"""Training and decoding on a real GPU: the CPU's numbers, no waits, memory that runs out, and exact resume."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from model_helpers import lively_model, sources
from mt.decoding.cuda_graphs import GraphedDecoder
from mt.decoding.engine import SearchOptions
from mt.decoding.search import search
from mt.system.devices import choose_device, deterministic_algorithms, has_bf16, has_fp16
from mt.training.step import TrainStep
from training_helpers import Parts, resume_is_exact, take_steps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here"),
]

EXACT = ("training.precision=fp32", "model.dropout=0.0")
DECODER_ONLY = "model={architecture: decoder_only, d_model: 16, n_heads: 2, d_ff: 32, decoder_layers: 2, norm: pre}"
# Heads of 32 numbers, which FlashAttention's kernels take.
FLASH = "model={d_model: 64, n_heads: 2, d_ff: 128, encoder_layers: 2, decoder_layers: 2, dropout: 0.1}"
STEPS = {
    "fp32": ["training.precision=fp32"],
    "bf16": ["training.precision=bf16", FLASH],
    "fp16": ["training.precision=fp16", FLASH],
    "compiled": ["training.precision=bf16", "training.compile=true", FLASH],
    "recompute": ["training.precision=bf16", "training.recompute=true", FLASH],
    "muon": ["training.optimizer=muon", "training.ema_decay=0.99", "training.accumulate=2"],
    "r_drop": ["training.precision=bf16", "training.r_drop=1.0", "model.word_dropout=0.1"],
    "attention dropout": ["training.precision=bf16", FLASH, "model.attention_dropout=0.1"],
    "decoder-only": [DECODER_ONLY, "training.precision=bf16"],
    "bidirectional source": [DECODER_ONLY, "model.bidirectional_source=true", "training.precision=fp16"],
}


@pytest.fixture(autouse=True)
def usual_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device as `mt` chooses it; afterwards neither limits nor switches stay."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used in this process
    choose_device("cuda")
    yield
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.set_per_process_memory_fraction(1.0)


def on_gpu(folder: Path, *changes: str) -> Parts:
    """Parts on the GPU, not compiled unless asked for: compilation takes longer than a test's steps."""
    parts = Parts(folder, "training.compile=false", *changes)
    parts.model.cuda()
    return parts


def test_losses_and_gradients_are_those_of_the_cpu(tiny: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False  # 10 bits of mantissa
    parts = Parts(tiny, *EXACT)
    batches = parts.batches(3)
    expected = parts.gradients(batches)
    parts.model.cuda()
    for cpu, gpu in zip(expected, parts.gradients(batches), strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("changes", STEPS.values(), ids=STEPS)
def test_a_step_waits_for_nothing_and_learns(tiny: Path, changes: list[str]) -> None:
    parts = on_gpu(tiny, "training.learning_rate=5e-3", *changes)
    trainer = parts.trainer()
    assert trainer.train_step.reads_late
    take_steps(trainer, 3)  # these may wait: for compilation, for a handle of cuBLAS, to allocate the moments
    torch.cuda.synchronize()
    first = trainer.step_results.summary(seconds=1.0)["loss"]
    torch.cuda.set_sync_debug_mode("error")
    take_steps(trainer, 3)
    torch.cuda.set_sync_debug_mode("default")
    take_steps(trainer, 54)
    trainer.step_results.flush()
    trainer.step_results.summary(seconds=1.0)
    take_steps(trainer, 10)
    trainer.step_results.flush()
    assert trainer.step_results.summary(seconds=1.0)["loss"] < 0.95 * first
    assert all(p.dtype == torch.float32 for p in parts.model.parameters())


def test_a_compiled_step_is_the_plain_one(tiny: Path) -> None:
    parts = on_gpu(tiny, *EXACT)
    torch.backends.cuda.matmul.allow_tf32 = False
    batches = parts.batches(4)
    expected = parts.gradients(batches)
    parts.configure(*EXACT, "training.compile=true")
    for plain, compiled in zip(expected, parts.gradients(batches), strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_gradients_in_16_bits_are_close_to_those_of_fp32(tiny: Path, precision: str) -> None:
    """FlashAttention and the loss's kernel on one side, SDPA and torch's operators on the CPU on the other."""
    parts = Parts(tiny, FLASH, "model.dropout=0.0", "training.compile=false")
    batches = parts.batches(3)
    expected = parts.gradients(batches)
    parts.model.cuda()
    parts.model.zero_grad()
    step = TrainStep(parts.config, parts.model, precision=precision)
    step.accumulate_gradients(batches, 0)
    if step.loss_scale is not None:
        step.loss_scale.unscale(parts.model)
    for (name, parameter), cpu in zip(parts.model.named_parameters(), expected, strict=True):
        if not name.endswith("bias"):  # a key's bias has no gradient but noise
            assert parameter.grad is not None
            error = (parameter.grad.cpu() - cpu).norm() / cpu.norm()
            assert error < 0.05, (name, error)


def test_the_format_is_chosen_by_the_card(tiny: Path) -> None:
    device = torch.device("cuda", 0)
    expected = "bf16" if has_bf16(device) else "fp16" if has_fp16(device) else "fp32"
    assert on_gpu(tiny, "training.precision=auto").trainer().precision == expected


def test_fp16_with_an_overflow_lowers_its_scale_and_goes_on(tiny: Path) -> None:
    parts = on_gpu(tiny, "training.precision=fp16", FLASH)
    trainer = parts.trainer()
    trainer.step()
    scale = trainer.train_step.loss_scale
    assert scale is not None
    scale.load((2.0**60, 0))
    before = parts.weights()
    trainer.step()
    trainer.step_results.flush()
    assert trainer.state.skipped_updates == 1
    assert scale.state() == (2.0**59, 0)
    assert all(torch.equal(a, b) for a, b in zip(before, parts.weights(), strict=True))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_deterministic_resume_is_exact(tiny: Path, precision: str) -> None:
    changes = (f"training.precision={precision}", "training.deterministic=true", FLASH)
    with deterministic_algorithms():
        assert resume_is_exact(on_gpu(tiny, *changes))


def test_a_batch_that_does_not_fit_is_split_and_stays_split(tiny: Path) -> None:
    """Memory is limited to two thirds of what the whole batch takes beyond the model's state."""
    shape = "model={d_model: 256, n_heads: 4, d_ff: 2048, encoder_layers: 6, decoder_layers: 6, norm: pre}"
    changes = (shape, "training.max_tokens=4000", "training.precision=fp32")
    trainer = on_gpu(tiny, *changes).trainer()
    trainer.step()
    torch.cuda.synchronize()
    state = torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    trainer.step()
    torch.cuda.synchronize()
    needed = torch.cuda.max_memory_allocated() - state
    torch.cuda.empty_cache()
    allowed = torch.cuda.memory_reserved() + 2 * needed // 3
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.get_device_properties(0).total_memory)
    take_steps(trainer, 3)
    trainer.step_results.flush()
    assert trainer.state.pieces in (2, 4)
    assert 1 <= trainer.state.out_of_memory <= 2
    assert trainer.state.skipped_updates == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resume_goes_on_in_the_same_place(tiny: Path, precision: str) -> None:
    parts = on_gpu(tiny, f"training.precision={precision}")
    trainer = parts.trainer()
    take_steps(trainer, 8)
    trainer.save()
    take_steps(trainer, 8)
    uninterrupted = parts.weights()
    resumed = parts.trainer()
    assert resumed.state.step == 8
    take_steps(resumed, 8)
    for a, b in zip(uninterrupted, parts.weights(), strict=True):  # CUDA's kernels add in no fixed order
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_an_update_that_is_not_finite_moves_nothing(tiny: Path) -> None:
    parts = on_gpu(tiny)
    trainer = parts.trainer()
    trainer.step()
    before, bias = parts.weights(), parts.model.decoder_norm.bias
    number = bias[0].item()
    with torch.no_grad():
        bias[0] = float("inf")
    trainer.step()
    trainer.step_results.flush()
    with torch.no_grad():
        bias[0] = number
    assert trainer.state.skipped_updates == 1
    assert all(torch.equal(a, b) for a, b in zip(before, parts.weights(), strict=True))


@pytest.mark.parametrize("beam_size", [1, 5])
def test_translations_are_those_of_the_cpu(beam_size: int) -> None:
    model, src_tokens = lively_model(), sources([7, 2, 5, 1])
    options = SearchOptions(beam_size)
    expected = [[h.ids for h in found] for found in search(model, src_tokens, options)]
    model.cuda()
    assert [[h.ids for h in found] for found in search(model, src_tokens.cuda(), options)] == expected


def test_decoding_in_bf16_mostly_agrees_with_fp32(tiny: Path) -> None:
    """The trained tiny model: translations of most sentences are equal."""
    parts = on_gpu(tiny, FLASH, "training.precision=bf16", "training.learning_rate=5e-3")
    take_steps(parts.trainer(), 200)
    src_tokens = torch.from_numpy(parts.batches(1)[0].src_tokens).cuda()
    options, model = SearchOptions(4), parts.model.eval()
    exact = [found[0].ids for found in search(model, src_tokens, options)]
    rounded = [found[0].ids for found in search(model.to(torch.bfloat16), src_tokens, options)]
    assert len(exact) == len(src_tokens)
    assert sum(a == b for a, b in zip(exact, rounded, strict=True)) >= 0.7 * len(exact)
    graphed = GraphedDecoder(model)
    for _ in range(3):  # the last replays what the others captured
        replayed = [found[0].ids for found in search(graphed, src_tokens, options)]
        assert sum(a == b for a, b in zip(replayed, rounded, strict=True)) >= 0.9 * len(exact)
    assert any(buffers.graph for buffers in graphed._buffers.values())
