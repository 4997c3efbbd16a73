"""Number formats of training: their choice, fp16 with a scaled loss, and determinism."""

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from command import mt
from config_helpers import SMALLEST
from mt.config import parse_config
from mt.errors import InputError, MachineError
from mt.model.build import TranslationModel, build
from mt.storage.run_dir import RunDir
from mt.system.devices import choose_device, has_bf16, has_fp16
from mt.system.distributed import SINGLE_PROCESS
from mt.training.precision import LossScale, choose_precision, measure_formats
from mt.training.step import TrainStep, _refuse_nondeterminism
from training_helpers import NoMemory, Parts, resume_is_exact, take_steps

AUTO = "training.precision=auto"


@pytest.fixture
def plain_processor(monkeypatch: pytest.MonkeyPatch):
    """A processor without instructions for bf16, to all appearances."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    has_bf16.cache_clear()
    yield
    has_bf16.cache_clear()


@pytest.fixture
def bf16_processor(monkeypatch: pytest.MonkeyPatch):
    """A processor that has instructions for bf16, to all appearances."""
    capabilities = {**torch.cpu.get_capabilities(), "avx512_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    has_bf16.cache_clear()
    yield
    has_bf16.cache_clear()


def choose(parts: Parts) -> str:
    return choose_precision(parts.config, parts.model, parts.run, SINGLE_PROCESS)


def test_a_run_begun_without_bf16_stays_in_fp32(
    tiny: Path, plain_processor: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(tiny, AUTO)
    assert choose(parts) == "fp32"
    assert json.loads(parts.run.precision.read_bytes()) == {"device": "cpu", "precision": "fp32", "seconds": {}}
    monkeypatch.setattr("mt.training.precision.has_bf16", lambda _: True)  # on another processor
    assert choose(parts) == "fp32"


def test_a_run_that_goes_on_without_bf16_says_so(
    tiny: Path, plain_processor: None, caplog: pytest.LogCaptureFixture
) -> None:
    parts = Parts(tiny, AUTO)
    parts.run.precision.write_text('{"device": "cpu", "precision": "bf16", "seconds": {}}')
    assert [choose(parts) for _ in range(2)] == ["fp32"] * 2
    assert caplog.text.count("from here on") == 1
    assert "fp32 from here on; this cpu device has no bf16" in caplog.text


@pytest.mark.parametrize(
    ("recorded", "capability", "expected", "messages"),
    [
        ("bf16", (7, 5), "fp16", 1),
        ("bf16", (6, 0), "fp32", 1),
        ("fp16", (8, 0), "fp16", 0),
        ("bf16", (8, 0), "bf16", 0),
    ],
)
def test_a_resume_on_another_gpu_chooses_again_only_where_its_format_is_emulated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    notices: list[str],
    recorded: str,
    capability: tuple[int, int],
    expected: str,
    messages: int,
) -> None:
    run, model = RunDir(tmp_path), torch.nn.Module()
    model.device = torch.device("cuda")
    run.precision.write_text(json.dumps({"device": "cuda", "precision": recorded, "seconds": {}}))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: capability >= (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    for cached in (has_bf16, has_fp16):
        cached.cache_clear()
        request.addfinalizer(cached.cache_clear)
    for _ in range(2):  # recorded, and so reported once
        assert choose_precision(parse_config(SMALLEST, "x.yaml"), model, run, SINGLE_PROCESS) == expected
    assert [f"{expected} from here on; this cuda device has no bf16" in notice for notice in notices] == [
        True
    ] * messages


@pytest.mark.parametrize("speedup", [0.9, 1.05, 1.5])
def test_the_faster_format_is_chosen_once_for_a_run(
    tiny: Path, bf16_processor: None, monkeypatch: pytest.MonkeyPatch, speedup: float
) -> None:
    parts = Parts(tiny, AUTO)
    monkeypatch.setattr("mt.training.precision.measure_formats", lambda *_: {"fp32": speedup, "bf16": 1.0})
    expected = "bf16" if speedup > 1.1 else "fp32"
    assert choose(parts) == expected
    monkeypatch.setattr("mt.training.precision.measure_formats", lambda *_: {"fp32": 1 / speedup, "bf16": 1.0})
    assert choose(parts) == expected
    record = json.loads(parts.run.precision.read_bytes())
    parts.run.precision.write_text(json.dumps({**record, "device": "cuda"}))  # the run moves to another device
    assert choose(parts) == ("bf16" if 1 / speedup > 1.1 else "fp32")
    parts.run.precision.write_text(json.dumps(record)[:-1])
    with pytest.raises(MachineError, match=r"precision\.json: damaged"):
        choose(parts)


def test_the_measurement_times_both_formats_and_leaves_the_model_as_it_was(tiny: Path) -> None:
    model: TranslationModel = Parts(tiny).model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    seconds = measure_formats(model, 64)
    assert set(seconds) == {"fp32", "bf16"}
    assert min(seconds.values()) > 0
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_few_positions_and_unequal_vocabularies_can_be_measured(tiny: Path) -> None:
    config = Parts(tiny, "model.positions=learned").config
    for sizes in ((50, 400), (400, 50)):
        measure_formats(build(config.model, *sizes, max_length=10, shared_vocab=False), 64)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_an_emulated_format_is_used_with_a_warning(
    tiny: Path, precision: str, caplog: pytest.LogCaptureFixture, plain_processor: None
) -> None:
    with caplog.at_level(logging.WARNING, "mt"):
        assert choose(Parts(tiny, f"training.precision={precision}")) == precision
    assert f"training.precision: this processor emulates {precision}" in caplog.text


def test_fp16_gradients_are_those_of_fp32(tiny: Path) -> None:
    parts = Parts(tiny, "model.dropout=0.0")
    batches = parts.batches(2)
    exact = parts.gradients(batches)
    parts.model.zero_grad()
    train_step = TrainStep(parts.config, parts.model, precision="fp16")
    train_step.accumulate_gradients(batches, 0)
    assert train_step.loss_scale is not None
    largest = max(float(p.grad.abs().max()) for p in parts.model.parameters())
    train_step.loss_scale.unscale(parts.model)
    assert largest == pytest.approx(2**16 * max(float(p.grad.abs().max()) for p in parts.model.parameters()))
    for parameter, gradient in zip(parts.model.parameters(), exact, strict=True):
        assert parameter.grad.dtype == torch.float32
        assert (parameter.grad - gradient).norm() < 0.02 * gradient.norm()


def test_an_fp16_training_resumes_exactly(tiny: Path) -> None:
    settings = "training.precision=fp16", "training.learning_rate=5e-3", "model.dropout=0.1"
    assert resume_is_exact(Parts(tiny, *settings))


def test_the_loss_scale_falls_after_an_overflow_and_is_kept_in_checkpoints(tiny: Path) -> None:
    parts = Parts(tiny, "training.precision=fp16")
    trainer = parts.trainer()
    trainer.step()
    assert trainer.train_step.loss_scale.state() == (2.0**16, 1)
    trainer.train_step.loss_scale.scale.fill_(1e38)
    before = [p.detach().clone() for p in parts.model.parameters()]
    trainer.step()
    trainer.step_results.flush()
    assert trainer.state.skipped_updates == 1
    assert all(map(torch.equal, before, parts.model.parameters()))
    assert trainer.train_step.loss_scale.state() == (pytest.approx(5e37), 0)
    trainer.train_step.loss_scale.load((1024.0, 7))
    trainer.save()
    assert parts.trainer().train_step.loss_scale.state() == (1024.0, 7)


def test_a_loss_scale_that_is_far_too_large_is_no_divergence(tiny: Path) -> None:
    trainer = Parts(tiny, "training.precision=fp16").trainer()
    trainer.train_step.loss_scale.scale.fill_(2.0**28)
    take_steps(trainer, 18)
    trainer.step_results.flush()
    assert 5 < trainer.state.skipped_updates < 18
    assert trainer.state.skipped_in_a_row == 0


def test_the_loss_scale_grows_after_many_finite_updates() -> None:
    scale = LossScale(torch.device("cpu"))
    finite, overflow = torch.tensor(1.0), torch.tensor(0.0)
    scale.load((8.0, LossScale.INTERVAL - 2))
    scale.update(finite)
    assert scale.state() == (8.0, LossScale.INTERVAL - 1)
    scale.update(finite)
    assert scale.state() == (16.0, 0)
    scale.update(finite)
    scale.update(overflow)
    assert scale.state() == (8.0, 0)


def test_batches_stay_split_after_memory_ran_out(tiny: Path) -> None:
    parts = Parts(tiny, "model.dropout=0.0")
    trainer = parts.trainer()
    NoMemory(5, torch.OutOfMemoryError("CUDA out of memory"))(trainer.train_step)
    for _ in range(3):
        trainer.step()
    assert trainer.state.pieces > 1
    assert trainer.state.out_of_memory <= 2  # not in every step
    trainer.save()
    assert parts.trainer().train_step.pieces == trainer.state.pieces


def test_moments_are_allocated_before_the_first_step(tiny: Path) -> None:
    parts = Parts(tiny)
    optimizer = TrainStep(parts.config, parts.model).optimizer
    assert all(set(optimizer.state[p]) == {"step", "exp_avg", "exp_avg_sq"} for p in parts.model.parameters())


def test_a_deterministic_training_on_a_cpu_is_the_usual_one(tiny: Path) -> None:
    weights = []
    for flag in ("false", "true"):
        settings = f"name={flag}x", f"training.deterministic={flag}"
        mt("train", "--config", "tiny.yaml", *(word for one in settings for word in ("--set", one)), cwd=tiny)
        weights.append(load_file(tiny / "runs" / f"{flag}x" / "model" / "model.safetensors"))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_an_operator_that_is_not_deterministic_is_named() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError) as caught:
            torch.zeros(3).put_(torch.tensor([0]), torch.tensor([1.0]), accumulate=False)
    finally:
        torch.use_deterministic_algorithms(False)
    with pytest.raises(InputError, match=r"training\.deterministic: put_ .*has no deterministic implementation"):
        _refuse_nondeterminism(caught.value)


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InputError, match="no GPU for process 3 on this machine, which has 2") as caught:
        choose_device("auto", local_rank=2)
    assert "--nproc-per-node=2" in caught.value.hint


@pytest.mark.parametrize(("version", "hint"), [(None, "has no CUDA"), ("12.8", "nvidia-smi")])
def test_cuda_that_cannot_be_used_is_explained(monkeypatch: pytest.MonkeyPatch, version: str | None, hint: str) -> None:
    monkeypatch.setattr(torch.version, "cuda", version)
    with pytest.raises(InputError, match="no usable cuda device") as caught:
        choose_device("cuda")
    assert hint in caught.value.hint
