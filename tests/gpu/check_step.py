"""A training step on fake CUDA: no wait, few copies, a budget of operators and bytes, and the CPU's numbers."""

import sys
from collections import Counter
from pathlib import Path

from fake_cuda import fake_gpu  # isort: skip (before torch)
import gpu_count
import pytest
import torch

from mt.config import parse_config
from mt.model.transformer import set_parameters
from mt.system.devices import choose_device
from training_helpers import Parts

BASE = Path(__file__).parents[2] / "configs" / "wmt14_en_de_base.yaml"
DECODER_ONLY = "model={architecture: decoder_only, d_model: 16, n_heads: 2, d_ff: 32, decoder_layers: 2, norm: pre}"
CASES = [
    ["training.precision=bf16"],
    ["training.precision=fp32", "model.activation=swiglu", "model.positions=learned", "model.norm=post"],
    ["training.precision=bf16", "training.r_drop=1.0", "model.word_dropout=0.1", "model.attention_dropout=0.1"],
    ["training.optimizer=muon", "training.ema_decay=0.99", "training.accumulate=2", "training.clip_norm=1.0"],
    [DECODER_ONLY],
    [DECODER_ONLY, "model.bidirectional_source=true", "training.precision=fp32"],
]
COPIES_PER_MICRO_BATCH = 1
# Operators and gigabytes of a step, counted with torch 2.13 by scripts/bench/gpu_count.py. Lower them when they fall.
SHALLOW = ["model.encoder_layers=2", "model.decoder_layers=2"]
BUDGET = {"forward": (130, 8.2), "loss": (30, 11.5), "backward": (192, 14.9), "update": (25, 1.5)}


@pytest.mark.parametrize("changes", CASES, ids=" ".join)
def test_training_never_waits_for_the_gpu(tiny: Path, changes: list[str]) -> None:
    """Nor does an operator take tensors of two devices: both would raise."""
    parts = Parts(tiny, "training.compile=false", *changes)
    with fake_gpu() as cuda:
        cuda.move(parts.model)
        trainer = parts.trainer()
        for _ in range(2):  # the second one reads the results of the first
            trainer.step()
    assert trainer.train_step.reads_late


def test_a_micro_batch_takes_one_copy_to_the_gpu(tiny: Path) -> None:
    parts = Parts(tiny, "training.compile=false", "training.accumulate=2")
    with fake_gpu() as cuda:
        cuda.move(parts.model)
        parts.trainer().step()
    assert len(cuda.copies) <= 2 * COPIES_PER_MICRO_BATCH, Counter(cuda.copies)


def test_a_step_of_a_shallow_base_keeps_to_its_budget() -> None:
    changes = ["training.precision=bf16", "training.compile=false", *SHALLOW]
    config = parse_config(BASE.read_text(), BASE.name, changes)
    operators = gpu_count.count_step(config, 32_000, gpu_count.draw_batch(24_000, 32_000))
    counted = {phase: [each for each in operators if each.phase == phase] for phase in BUDGET}
    assert sum(map(len, counted.values())) == len(operators)
    for phase, (most, gigabytes) in BUDGET.items():
        assert len(counted[phase]) <= most, (phase, Counter(each.name for each in counted[phase]))
        assert sum(each.bytes for each in counted[phase]) <= gigabytes * 1e9, phase


def test_the_printed_table_adds_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--tokens", "640", "--vocab", "100", "--set", "model.encoder_layers=1", "model.decoder_layers=1"]
    monkeypatch.setattr(sys, "argv", ["gpu_count.py", str(BASE), *small])
    gpu_count.main()
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    counts = {phase.strip(): int(number.replace(",", "")) for phase, number in rows}
    assert counts.pop("total") == sum(counts.values()) > 4 * len(counts) > 0


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_weights_are_those_of_the_cpu_and_an_infinite_update_moves_none(tiny: Path, optimizer: str) -> None:
    # Attention does not feel a bias of its keys, and Adam would follow the noise of its gradient.
    exact = (
        "training.compile=false",
        "training.precision=fp32",
        "model.dropout=0.0",
        "model.attention_bias=false",
        "training.ema_decay=0.9",
    )
    parts = Parts(tiny, f"training.optimizer={optimizer}", "training.clip_norm=1.0", *exact)
    initial = {name: parameter.detach().clone() for name, parameter in parts.model.named_parameters()}
    on_cpu = parts.trainer()
    for _ in range(3):
        on_cpu.step()
    expected = [p.detach().clone() for p in parts.model.parameters()], list(on_cpu.average.weights.values())
    set_parameters(parts.model, initial)
    with fake_gpu(values=True) as cuda:
        cuda.move(parts.model)
        trainer = parts.trainer()
        for _ in range(3):
            trainer.step()
        found = list(parts.model.parameters()), list(trainer.average.weights.values())
        for mine, theirs in zip(found[0] + found[1], expected[0] + expected[1], strict=True):
            torch.testing.assert_close(mine.twin, theirs, rtol=1e-3, atol=1e-4)
        parts.model.output.weight.twin[5, 0] = float("nan")
        before = [p.twin.clone() for p in found[0]]
        trainer.step()
        trainer.step_results.flush()
        assert trainer.state.skipped_updates == 1
        for now, then in zip(found[0], before, strict=True):
            torch.testing.assert_close(now.twin, then, rtol=0, atol=0, equal_nan=True)
    assert cuda.waits == []


def test_cudnn_attention_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would plan a kernel for each shape, and nearly every batch has a new one."""
    for name, value in {"is_available": True, "device_count": 1, "current_device": 0, "set_device": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    torch.backends.cuda.enable_cudnn_sdp(True)
    choose_device("cuda")
    assert not torch.backends.cuda.cudnn_sdp_enabled()
