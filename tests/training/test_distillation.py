"""Word-level distillation: the fused loss equals torch's, teachers change what is learned, and a resume stays exact."""

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from command import Command, mt
from model_helpers import Watch, near
from mt.bundle.model_folder import build_model
from mt.config import Config, parse_config
from mt.errors import InputError
from mt.model.loss import fused_cross_entropy, fused_distillation_cross_entropy
from mt.model.packing import Packing
from mt.model.transformer import Transformer
from mt.pipeline import run as pipeline
from mt.training.step import TrainStep
from resume_helpers import resumes, run_of, wait_for_step, weights
from training_helpers import NoMemory, Parts, assert_equal

D_MODEL, VOCAB = 16, 40
Teachers = list[tuple[Tensor, Tensor]]


def drawn(tokens: int, teachers: int = 2) -> tuple[Tensor, Tensor, Tensor, Teachers]:
    """A student's states (N, D) and output matrix (V, D), labels (N,), and teachers of other widths."""
    generator = torch.Generator().manual_seed(tokens)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    labels = torch.randint(1, VOCAB, (tokens,), generator=generator)
    taught = [(normal(tokens, D_MODEL + 8 * n), normal(VOCAB, D_MODEL + 8 * n) / 2) for n in range(teachers)]
    return normal(tokens, D_MODEL).requires_grad_(), (normal(VOCAB, D_MODEL) / 2).requires_grad_(), labels, taught


def expected(
    states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, teachers: Teachers, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and both gradients by torch, in double precision."""
    inputs, matrix = states.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    logits = inputs @ matrix.T
    mean = sum((theirs.double() @ output.double().T).softmax(-1) for theirs, output in teachers) / len(teachers)
    hard = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    loss = (1 - share) * hard + share * F.cross_entropy(logits, mean, reduction="sum")
    loss.backward()
    return loss.detach(), inputs.grad, matrix.grad


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("tokens", "teachers"), [(1, 1), (255, 3), (257, 2), (700, 2)])
def test_equals_torch(tokens: int, teachers: int, share: float, smoothing: float) -> None:
    states, weight, labels, taught = drawn(tokens, teachers)
    loss, nll = fused_distillation_cross_entropy(states, weight, labels, smoothing, taught, share)
    loss.backward()
    wanted, states_gradient, weight_gradient = expected(states, weight, labels, smoothing, taught, share)
    near(loss, wanted, 1e-5)
    near(nll, F.cross_entropy(states @ weight.T, labels, reduction="sum").detach(), 1e-5)
    near(states.grad, states_gradient, 1e-5)
    near(weight.grad, weight_gradient, 1e-5)
    assert not nll.requires_grad


def test_without_a_share_it_is_the_plain_loss() -> None:
    states, weight, labels, taught = drawn(300)
    loss, nll = fused_distillation_cross_entropy(states, weight, labels, 0.1, taught, 0.0)
    plain, plain_nll = fused_cross_entropy(states, weight, labels, 0.1)
    near(loss, plain.detach(), 1e-5)
    near(nll, plain_nll, 1e-5)


def test_a_student_that_is_its_teacher_has_nothing_to_learn() -> None:
    states, weight, labels, _ = drawn(15)
    itself = [(states.detach(), weight.detach())]
    fused_distillation_cross_entropy(states, weight, labels, 0.1, itself, 1.0)[0].backward()
    assert states.grad.abs().max() < 1e-6
    assert weight.grad.abs().max() < 1e-5


def test_without_tokens_there_is_no_loss() -> None:
    states, weight, labels, taught = drawn(0)
    loss, nll = fused_distillation_cross_entropy(states, weight, labels, 0.1, taught, 0.5)
    loss.backward()
    assert loss == nll == 0
    assert not weight.grad.any()


def test_gradients_take_the_factor_from_above_and_add_up() -> None:
    states, weight, labels, taught = drawn(15)
    for divisor in (7, 3):
        (fused_distillation_cross_entropy(states, weight, labels, 0.1, taught, 0.5)[0] / divisor).backward()
    _, states_gradient, weight_gradient = expected(states, weight, labels, 0.1, taught, 0.5)
    near(states.grad, states_gradient * (1 / 7 + 1 / 3), 1e-5)
    near(weight.grad, weight_gradient * (1 / 7 + 1 / 3), 1e-5)


def test_bf16_autocast_is_close() -> None:
    states, weight, labels, taught = drawn(600)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = fused_distillation_cross_entropy(states, weight, labels, 0.1, taught, 0.5)
    loss.backward()
    wanted, states_gradient, weight_gradient = expected(states, weight, labels, 0.1, taught, 0.5)
    assert loss.dtype == states.grad.dtype == weight.grad.dtype == torch.float32
    near(loss, wanted, 0.01)
    near(states.grad, states_gradient, 0.05)
    near(weight.grad, weight_gradient, 0.05)


def test_never_holds_the_logits_of_the_whole_batch() -> None:
    states, weight, labels, taught = drawn(1500)
    with Watch() as watch:
        fused_distillation_cross_entropy(states, weight, labels, 0.1, taught, 0.5)[0].backward()
    assert watch.largest <= max(512 * VOCAB, *(x.numel() for x, _ in taught)) < 2 * labels.numel() * VOCAB


# In a training ------------------------------------------------------------------------------------------------------


def teachers_of(parts: Parts, number: int) -> list[Transformer]:
    """Models of the same vocabulary, of other weights and another width."""
    changes = [f"model.d_model={parts.config.model.d_model * 2}"]
    config = parse_config((parts.run.root.parents[1] / "tiny.yaml").read_text(), "tiny.yaml", changes)
    found = []
    for seed in range(number):
        torch.manual_seed(seed)
        found.append(build_model(config, parts.tokenizers).eval().requires_grad_(False))
    return found


def gradients(
    parts: Parts, batches, teachers: Sequence[Transformer], weight: float = 0.5, after=lambda _: None
) -> list[Tensor]:
    training = parts.config.training.model_copy(update={"distill_weight": weight})
    parts.model.zero_grad()
    adding = TrainStep(
        parts.config.model_copy(update={"training": training}), parts.model, load_teachers=lambda: teachers
    )
    after(adding)
    adding.accumulate_gradients(batches, 0)
    return [p.grad.clone() for p in parts.model.parameters()]


def test_gradients_are_those_of_autograd(tiny: Path) -> None:
    parts = Parts(tiny, "model.dropout=0.0")
    teachers = teachers_of(parts, 2)
    # Padding on both sides: what is packed must find its label in the teachers' passes, too.
    batch = next(b for b in parts.batches(20) if (b.tgt_out == 0).any() and (b.src_tokens == 0).any())
    found = gradients(parts, [batch], teachers, 0.7)
    src_tokens, tgt_in, labels = map(torch.from_numpy, (batch.src_tokens, batch.tgt_in, batch.tgt_out))
    packing = Packing.of(tgt_in)
    mean = sum(packing.pack(teacher(src_tokens, tgt_in)).softmax(-1) for teacher in teachers) / 2
    logits, labels = packing.pack(parts.model(src_tokens, tgt_in)), packing.pack(labels)
    hard = F.cross_entropy(logits, labels, label_smoothing=parts.config.training.label_smoothing, reduction="sum")
    loss = 0.3 * hard + 0.7 * F.cross_entropy(logits, mean, reduction="sum")
    parts.model.zero_grad()
    (loss / batch.n_tgt).backward()
    assert_equal(found, [p.grad for p in parts.model.parameters()])


def test_teachers_change_what_is_learned_and_nothing_else(tiny: Path) -> None:
    parts = Parts(tiny)
    batches, teachers = parts.batches(2), teachers_of(parts, 2)
    before = [p.clone() for teacher in teachers for p in teacher.parameters()]
    alone, none = gradients(parts, batches, ()), gradients(parts, batches, teachers, 0.0)
    taught = gradients(parts, batches, teachers, 0.5)
    assert_equal(alone, none)  # the teachers' passes draw nothing of the student's dropout
    assert any(not torch.allclose(a, b, rtol=1e-2) for a, b in zip(alone, taught, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, (p for t in teachers for p in t.parameters()), strict=True))


def test_out_of_memory_splits_the_batch_and_changes_nothing(tiny: Path) -> None:
    parts = Parts(tiny, "model.dropout=0.0")
    batches, teachers = parts.batches(2), teachers_of(parts, 1)
    most = max(len(b.src_tokens) for b in batches)
    after = NoMemory(most // 3, torch.OutOfMemoryError("CUDA out of memory"))
    assert_equal(gradients(parts, batches, teachers), gradients(parts, batches, teachers, after=after))


# From runs to a run -------------------------------------------------------------------------------------------------

STUDENT = ["training.distill_from=[given]", "model.d_ff=24", "training.max_steps=120", "training.save_every=10"]


@pytest.fixture
def given(trained: Path, tiny: Path) -> Path:
    """The tiny project, and in `given` a model that was trained on it."""
    return Path(shutil.copytree(run_of(trained).model.root, tiny / "given")).parent


def train(folder: Path, *changes: str, code: int = 0):
    words = [word for change in (*STUDENT, *changes) for word in ("--set", change)]
    return mt("train", "--config", "tiny.yaml", *words, cwd=folder, code=code)


def config_of(folder: Path, *changes: str) -> Config:
    changes = (f"data.root={folder}", f"training.distill_from=[{folder / 'given'}]", *changes)
    return parse_config((folder / "tiny.yaml").read_text(), "tiny.yaml", changes)


def refusal(folder: Path, *changes: str) -> str:
    with pytest.raises(InputError) as caught:
        pipeline.run(config_of(folder, *changes), folder / "runs")
    return caught.value.message


def test_killed_and_resumed_ends_in_the_same_weights(given: Path) -> None:
    expected_folder = given / "uninterrupted"
    shutil.copytree(given, expected_folder)
    train(expected_folder)
    words = [word for change in STUDENT for word in ("--set", change)]
    for step in (20, 60):
        command = Command("train", "--config", "tiny.yaml", *words, cwd=given)
        wait_for_step(given, step, command)
        command.signal(signal.SIGKILL)
        command.wait()
    train(given)
    assert weights(given) == weights(expected_folder)
    assert resumes(given) >= 1
    alone = given / "alone"
    shutil.copytree(expected_folder, alone, ignore=shutil.ignore_patterns("runs"))
    train(alone, "training.distill_weight=0.0")
    assert weights(alone) != weights(expected_folder)


def test_the_student_has_the_teachers_tokenizer(given: Path) -> None:
    """Even where its own text would give another."""
    (given / "train.en").write_text(20 * "k m k m\n" + (given / "train.en").read_text())
    (given / "train.xx").write_text(20 * "0 z 0 z\n" + (given / "train.xx").read_text())
    train(given, "tokenizer.vocab_size=310", "training.max_steps=2")
    ours, theirs = (folder / "tokenizer" / "tokenizer.json" for folder in (run_of(given).model.root, given / "given"))
    assert ours.read_text() == theirs.read_text()


def test_another_vocabulary_is_refused(given: Path) -> None:
    (given / "train.en").write_text(20 * "k m k m\n" + (given / "train.en").read_text())
    (given / "train.xx").write_text(20 * "0 z 0 z\n" + (given / "train.xx").read_text())
    mt("train", "--config", "tiny.yaml", "--set", "name=other", "--set", "training.max_steps=2", cwd=given)
    both = f"training.distill_from=[{given / 'given'}, {given / 'runs' / 'other'}]"
    assert "the vocabulary of" in refusal(given, both)
    assert "tokenizer.shared" in refusal(given, "tokenizer.shared=false")


def test_a_teacher_of_another_direction_is_refused(given: Path) -> None:
    message = refusal(given, "data.source_lang=fr")
    assert message.endswith("translates from en into xx")


def test_a_teacher_that_is_not_there_is_refused(given: Path) -> None:
    assert "training.distill_from: gone: " in train(given, "training.distill_from=[gone]", code=2).stderr


def test_r_drop_and_teachers_contradict_each_other(given: Path) -> None:
    done = train(given, "training.r_drop=1.0", code=2)
    assert "set r_drop: 0, or distill_from: []" in done.stderr
    assert "names given more than once" in train(given, "training.distill_from=[given, given]", code=2).stderr


def test_a_resume_needs_the_same_teachers(given: Path) -> None:
    train(given, "training.max_steps=12")
    shutil.copytree(given / "given", given / "copy")
    assert "training.distill_from is now" in train(given, "training.distill_from=[copy]", code=2).stderr
    (given / "given").rename(given / "away")
    assert "given is gone, and training needs it until its end" in train(given, code=2).stderr
    train(given, "training.max_steps=12")  # this one has ended
    (given / "away").rename(given / "given")
    assert "resuming after step 12" in train(given).stderr


def test_another_content_is_refused(given: Path) -> None:
    train(given, "training.max_steps=12")
    other = given / "second"
    shutil.copytree(given, other, ignore=shutil.ignore_patterns("runs"))
    train(other, "training.max_steps=3", "training.distill_from=[]", "name=other")
    shutil.rmtree(given / "given")
    shutil.copytree(other / "runs" / "other" / "model", given / "given")
    assert "training.distill_from: the content has changed" in train(given, code=2).stderr


def test_a_dry_run_measures_with_them(given: Path) -> None:
    words = [word for change in STUDENT for word in ("--set", change)]
    shown = mt("train", "--config", "tiny.yaml", "--dry-run", *words, cwd=given).stdout
    assert "learns from" in shown
    words += ["--set", "training.distill_from=[gone]"]
    assert "gone: " in mt("train", "--config", "tiny.yaml", "--dry-run", *words, cwd=given, code=2).stderr
