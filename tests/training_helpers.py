"""The parts of a training on the tiny project, put together as the pipeline does."""

import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from command import Command
from mt.bundle.model_folder import build_model
from mt.bundle.pretrained import Pretrained
from mt.config import Config, parse_config
from mt.data.batching import BatchStream
from mt.data.encode import encode_corpus
from mt.data.prepare import input_digests
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.pipeline.data import clean_text, encode, make_tokenizers
from mt.storage.run_dir import RunDir
from mt.text.lines import TextFile
from mt.training.step import TrainStep
from mt.training.step_results import StepResults
from mt.training.trainer import Trainer
from mt.training.validation import Validation
from resume_helpers import wait_for_step


def project_copy(tiny: Path, name: str) -> Path:
    """Copy the tiny project into a folder within it."""
    names = {path.name for path in tiny.iterdir() if path.is_dir()}
    return Path(shutil.copytree(tiny, tiny / name, ignore=lambda folder, _: names if folder == str(tiny) else []))


def overrides(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def kill_training(folder: Path, step: int, *changes: str) -> None:
    """Start a training, and kill it once it has made so many steps."""
    command = Command("train", "--config", "tiny.yaml", *overrides(*changes), cwd=folder)
    wait_for_step(folder, step, command)
    command.signal(signal.SIGKILL)
    command.wait()


class Parts:
    """Real tokenizer, corpus and model of the tiny project."""

    def __init__(self, folder: Path, *changes: str) -> None:
        self.folder = folder
        self.run = RunDir(folder / "runs" / "tiny")
        self.run.root.mkdir(parents=True)
        text = (folder / "train.en", folder / "train.xx")
        self.configure(*changes)
        self.tokenizers = tokenizers = TokenizerPair.train(TextFile(text[0]), TextFile(text[1]), 320, shared=True)
        encode_corpus(text, tokenizers, folder / "encoded", "key", None)
        self.corpus = EncodedCorpus.open(folder / "encoded")
        torch.manual_seed(1)
        self.model = build_model(self.config, tokenizers)

    def configure(self, *changes: str) -> None:
        self.config: Config = parse_config((self.folder / "tiny.yaml").read_text(), "tiny.yaml", changes)

    def trainer(self, late: bool = False, validate: Callable[[Any], Validation] | None = None) -> Trainer:
        """Args: late: let it ask for a step's results when the next one is under way, as on a GPU."""
        validate = validate or (lambda _: Validation(1.0, math.e, 0.0, "", []))
        trainer = Trainer(self.config, self.run, self.model, self.corpus, validate)
        if late:
            trainer.train_step.reads_late = True
            trainer.step_results = StepResults(trainer.state, trainer.metrics, late=True)
        return trainer

    def gradients(self, batches, after=lambda gradients: None) -> list[torch.Tensor]:
        """The gradients that `TrainStep` adds up for some batches."""
        self.model.zero_grad()
        gradients = TrainStep(self.config, self.model)
        after(gradients)
        gradients.accumulate_gradients(batches, 0)
        return [p.grad.clone() for p in self.model.parameters()]

    def weights(self) -> list[torch.Tensor]:
        return [p.detach().clone() for p in self.model.parameters()]

    def forget(self) -> None:
        """Draw other weights, as a new process would."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.normal_()

    def batches(self, number: int):
        stream = BatchStream(self.corpus, 200, seed=1)
        return [stream.next() for _ in range(number)]


def take_steps(trainer: Trainer, number: int) -> None:
    for _ in range(number):
        trainer.step()


def resume_is_exact(parts: Parts, steps: int = 3) -> bool:
    """Whether a training that is saved, goes on, is lost and resumed ends in the same weights again."""
    trainer = parts.trainer()
    take_steps(trainer, steps)
    trainer.save()
    take_steps(trainer, steps)
    uninterrupted = parts.weights()
    parts.forget()
    resumed = parts.trainer()
    assert resumed.state.step == steps
    take_steps(resumed, steps)
    return all(torch.equal(a, b) for a, b in zip(uninterrupted, parts.model.parameters(), strict=True))


def assert_equal(first, second) -> None:
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)


class NoMemory:
    """Fails like torch's allocators where a batch has more than so many sentences."""

    def __init__(self, sentences: int, error: Exception) -> None:
        self.sentences, self.error = sentences, error

    def __call__(self, gradients: TrainStep) -> None:
        model = gradients._objective.model
        states = model.states

        def limited(src_tokens, *others):
            result = states(src_tokens, *others)
            if len(src_tokens) > self.sentences:
                raise self.error
            return result

        model.states = limited


def prepare_run(config: Config, run: RunDir, pretrained: Pretrained | None = None) -> TokenizerPair:
    """Run the stages before training as the pipeline does; return the tokenizers."""
    key = clean_text(config, run, input_digests(config.data))
    tokenizers, files = make_tokenizers(config, run, key, pretrained or Pretrained(config))
    encode(config, run, tokenizers, files, key)
    return tokenizers
