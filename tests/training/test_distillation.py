"""Word-level distillation: gradients of autograd, resumes, and teachers that are refused."""

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from command import Command, mt
from mt.bundle.model_folder import build_model
from mt.config import Config, parse_config
from mt.errors import InputError
from mt.model.packing import Packing
from mt.model.transformer import Transformer
from mt.pipeline import run as pipeline
from mt.training.step import TrainStep
from resume_helpers import resumes, run_of, wait_for_step, weights
from training_helpers import NoMemory, Parts, assert_equal

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
