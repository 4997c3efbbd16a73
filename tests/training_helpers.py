"""The parts of a training on the tiny project, put together as the pipeline does."""

import math
from pathlib import Path

import torch

from mt.bundle.model_folder import build_model
from mt.bundle.pretrained import Pretrained
from mt.config import Config, parse_config
from mt.data.batching import BatchStream
from mt.data.encode import encode_corpus
from mt.data.prepare import input_digests
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import TokenizerPair
from mt.pipeline.data import clean_text, encode, make_tokenizers
from mt.storage.run_dir import RunDir
from mt.text.lines import TextFile
from mt.training.step import TrainStep
from mt.training.step_results import StepResults
from mt.training.trainer import Trainer
from mt.training.validation import Validation


class Parts:
    """Real tokenizer, corpus and model of the tiny project."""

    def __init__(self, folder: Path, *changes: str) -> None:
        self.run = RunDir(folder / "runs" / "tiny")
        self.run.root.mkdir(parents=True)
        text = (folder / "train.en", folder / "train.xx")
        self.config: Config = parse_config((folder / "tiny.yaml").read_text(), "tiny.yaml", changes)
        self.tokenizers = tokenizers = TokenizerPair.train(TextFile(text[0]), TextFile(text[1]), 320, shared=True)
        encode_corpus(text, tokenizers, folder / "encoded", "key", None)
        self.corpus = EncodedCorpus.open(folder / "encoded")
        torch.manual_seed(1)
        self.model = build_model(self.config, tokenizers)

    def trainer(self, late: bool = False) -> Trainer:
        """Args: late: let it ask for a step's results when the next one is under way, as on a GPU."""
        trainer = Trainer(
            self.config, self.run, self.model, self.corpus, lambda _: Validation(1.0, math.e, 0.0, "", [])
        )
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

    def batches(self, number: int):
        stream = BatchStream(self.corpus, 200, seed=1)
        return [stream.next() for _ in range(number)]


def resume_is_exact(parts: Parts, steps: int = 3) -> bool:
    """Whether a training that is saved, goes on, is lost and resumed ends in the same weights again."""
    trainer = parts.trainer()
    for _ in range(steps):
        trainer.step()
    trainer.save()
    for _ in range(steps):
        trainer.step()
    uninterrupted = [p.detach().clone() for p in parts.model.parameters()]
    with torch.no_grad():
        for parameter in parts.model.parameters():
            parameter.normal_()
    resumed = parts.trainer()
    assert resumed.state.step == steps
    for _ in range(steps):
        resumed.step()
    return all(torch.equal(a, b) for a, b in zip(uninterrupted, parts.model.parameters(), strict=True))


def assert_equal(first, second) -> None:
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)


class NoMemory:
    """Fails like torch's allocators where a batch has more than so many sentences."""

    def __init__(self, sentences: int, error: Exception) -> None:
        self.sentences, self.error = sentences, error

    def __call__(self, gradients: TrainStep) -> None:
        states = gradients._objective._states

        def limited(src_tokens, *others):
            result = states(src_tokens, *others)
            if len(src_tokens) > self.sentences:
                raise self.error
            return result

        gradients._objective._states = limited


def prepare_run(config: Config, run: RunDir, pretrained: Pretrained | None = None) -> TokenizerPair:
    """Run the stages before training as the pipeline does; return the tokenizers."""
    key = clean_text(config, run, input_digests(config.data))
    tokenizers, files = make_tokenizers(config, run, key, pretrained or Pretrained(config))
    encode(config, run, tokenizers, files, key)
    return tokenizers
