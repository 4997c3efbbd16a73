"""Word-level distillation: gradients of autograd, resumes, and teachers that are refused."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from command import mt
from mt.bundle.model_folder import build_model
from mt.config import parse_config
from mt.model.packing import Packing
from mt.model.transformer import Transformer
from mt.training.step import TrainStep
from resume_helpers import resumes, run_of, weights
from training_helpers import NoMemory, Parts, assert_equal, kill_training, overrides, project_copy

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
    return mt("train", "--config", "tiny.yaml", *overrides(*STUDENT, *changes), cwd=folder, code=code)


def write_other_text(folder: Path) -> None:
    """Add lines from which another tokenizer would be trained."""
    for name, line in (("train.en", "k m k m\n"), ("train.xx", "0 z 0 z\n")):
        (folder / name).write_text(20 * line + (folder / name).read_text())


@pytest.mark.slow
def test_killed_and_resumed_ends_in_the_same_weights(given: Path) -> None:
    whole, alone = project_copy(given, "whole"), project_copy(given, "alone")
    for folder in (whole, alone):
        shutil.copytree(given / "given", folder / "given")
    train(whole)
    for step in (20, 60):
        kill_training(given, step, *STUDENT)
    train(given)
    assert weights(given) == weights(whole)
    assert resumes(given) >= 1
    train(alone, "training.distill_weight=0.0")
    assert weights(alone) != weights(whole)


def test_the_student_has_the_teachers_tokenizer(given: Path) -> None:
    """Even where its own text would give another."""
    write_other_text(given)
    train(given, "tokenizer.vocab_size=310", "training.max_steps=2")
    ours, theirs = (folder / "tokenizer" / "tokenizer.json" for folder in (run_of(given).model.root, given / "given"))
    assert ours.read_text() == theirs.read_text()


def test_another_vocabulary_is_refused(given: Path) -> None:
    write_other_text(given)
    mt("train", "--config", "tiny.yaml", *overrides("name=other", "training.max_steps=2"), cwd=given)
    assert "the vocabulary of" in train(given, "training.distill_from=[given, runs/other]", code=2).stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("tokenizer.shared=false", "tokenizer.shared"),
        ("data.source_lang=fr", "translates from en into xx\n"),
        ("model.source_format=text </s>", "has another model.source_format or model.target_tag"),
        ("training.distill_from=[gone]", "training.distill_from: gone: "),
        ("training.distill_from=[given, given]", "names given more than once"),
        ("training.r_drop=1.0", "set r_drop: 0, or distill_from: []"),
    ],
)
def test_contradictions_are_refused(given: Path, change: str, message: str) -> None:
    assert message in train(given, change, code=2).stderr


def test_a_resume_needs_the_same_teachers(given: Path) -> None:
    train(given, "training.max_steps=12")
    shutil.copytree(given / "given", given / "copy")
    train(given, "training.max_steps=12", "training.distill_from=[copy]")  # the same one under another path
    assert "training.distill_from is now" in train(given, "training.distill_from=[copy, given]", code=2).stderr
    (given / "given").rename(given / "away")
    assert "given is gone, and training needs it until its end" in train(given, code=2).stderr
    train(given, "training.max_steps=12")  # this one has ended
    (given / "away").rename(given / "given")
    assert "resuming after step 12" in train(given).stderr


def test_another_content_is_refused(given: Path) -> None:
    train(given, "training.max_steps=12")
    mt("train", "--config", "tiny.yaml", *overrides("training.max_steps=3", "name=other"), cwd=given)
    shutil.rmtree(given / "given")
    shutil.copytree(given / "runs" / "other" / "model", given / "given")
    assert "training.distill_from: the content has changed" in train(given, code=2).stderr


def test_a_dry_run_measures_with_them(given: Path) -> None:
    command = ["train", "--config", "tiny.yaml", "--dry-run", *overrides(*STUDENT)]
    assert "learns from" in mt(*command, cwd=given).stdout
    command += overrides("training.distill_from=[gone]")
    assert "gone: " in mt(*command, cwd=given, code=2).stderr
