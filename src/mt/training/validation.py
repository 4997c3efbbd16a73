"""Validation during training: loss, perplexity, and greedy BLEU on raw text."""

import math
from dataclasses import asdict, dataclass, field
from itertools import chain, islice, zip_longest
from typing import Any

import torch

from mt.config import Config
from mt.console import log, shortened
from mt.data.batching import assemble, plan_epoch
from mt.data.eval_texts import EvalText
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import DistributedEngine, SearchOptions
from mt.decoding.settings import TranslationSettings
from mt.decoding.text_translation import Translated, bleu_by_direction, translate_texts
from mt.decoding.torch_engine import TorchEngine
from mt.decoding.translator import Translator
from mt.metrics.scores import bleu_signature
from mt.model.build import TranslationModel
from mt.model.loss import fused_cross_entropy, with_bias
from mt.model.packing import Packing, send
from mt.system.distributed import SINGLE_PROCESS, Distributed


@dataclass(frozen=True)
class Validation:
    """Validation scores: loss (mean negative log-likelihood of a target token, in nats), its perplexity, and BLEU.

    Attributes:
        signature: the sacreBLEU signature.
        samples: (source, hypothesis, reference) of the first sentences.
        bleu_by_pair: for a model of several source languages; `bleu` is the mean.
    """

    loss: float
    perplexity: float
    bleu: float
    signature: str
    samples: list[tuple[str, str, str]]
    bleu_by_pair: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of the event in metrics.jsonl."""
        return {key: value for key, value in asdict(self).items() if key != "bleu_by_pair" or value}

    def log(self, step: int, is_best: bool) -> None:
        """Log the scores and the samples, shortened; the metrics log has them in full."""
        log.info(
            "step %d: validation loss %.4f, perplexity %.2f, BLEU %.2f (greedy)%s",
            step,
            self.loss,
            self.perplexity,
            self.bleu,
            ", the best so far" if is_best else "",
        )
        if self.bleu_by_pair:
            log.info("  BLEU by pair: %s", ", ".join(f"{pair} {bleu:.2f}" for pair, bleu in self.bleu_by_pair.items()))
        for sample in self.samples:
            log.info("  %s → %s (reference: %s)", *(shortened(text) for text in sample))


@dataclass
class Validator:
    """Scores a model on the validation set.

    Attributes:
        config: the run's configuration.
        encoded: the validation set as token ids, for the loss.
        texts: the same as raw text, for BLEU.
        tokenizers: of both languages.
        distributed: the ranks that share the work; all return the same scores.
    """

    config: Config
    encoded: EncodedCorpus
    texts: list[EvalText]
    tokenizers: TokenizerPair
    distributed: Distributed = SINGLE_PROCESS
    _warned: bool = field(default=False, init=False)

    def __call__(self, model: TranslationModel) -> Validation:
        config = self.config
        signature = bleu_signature(config.evaluation, [text.target_lang for text in self.texts])
        loss = self._loss(model)
        engine = DistributedEngine(TorchEngine(model, config.decoding.batch_tokens), self.distributed)
        translator = Translator(engine, self.tokenizers, TranslationSettings.of(config))
        options = SearchOptions(
            beam_size=1, max_length=config.longest_translation, max_length_ratio=config.decoding.max_length_ratio
        )
        if self.distributed.is_main and not self._warned:
            for text in self.texts:
                translator.for_text(text).warn_long_lines(text.sources, "validation set")
            log.info("validation with greedy search, %s", signature)
            self._warned = True
        translated = translate_texts(translator, self.texts, options)
        by_pair = bleu_by_direction(translated, config.evaluation.bleu_tokenize)
        bleu = sum(by_pair.values()) / len(by_pair)
        by_pair = by_pair if len(config.data.source_lang) > 1 else {}
        samples = _samples(translated, config.training.sample_translations)
        return Validation(loss, math.exp(min(loss, 700.0)), bleu, signature, samples, by_pair)

    @torch.no_grad()
    def _loss(self, model: TranslationModel) -> float:
        """Compute the mean negative log-likelihood of a target token, with over-long sentences truncated."""
        config, corpus = self.config, self.encoded
        device = model.device
        was_training = model.training
        model.eval()
        total, tokens = 0.0, 0
        plan = plan_epoch(*corpus.lengths(), config.training.max_tokens, 0, 0)
        for indices in self.distributed.shard(plan):
            batch = assemble(corpus, indices, config.data.max_length)
            src_tokens, tgt_in, tgt_out = map(torch.from_numpy, (batch.src_tokens, batch.tgt_in, batch.tgt_out))
            src, tgt = Packing.of(src_tokens, device), Packing.of(tgt_in, device)
            (src_tokens, tgt_in, labels), (src, tgt) = send((src_tokens, tgt_in, tgt.pack(tgt_out)), (src, tgt), device)
            states = model.states(src_tokens, tgt_in, src, tgt)
            _, nll = fused_cross_entropy(*with_bias(states, model.output), labels, 0.0)
            total += nll.item()
            tokens += batch.n_tgt
        model.train(was_training)
        return sum(self.distributed.all_gather([total])) / sum(self.distributed.all_gather([tokens]))


def _samples(translated: list[Translated], number: int) -> list[tuple[str, str, str]]:
    """Take the first sentences, alternating between the directions."""
    triples = [zip(part.text.sources, part.hypotheses, part.text.references, strict=True) for part in translated]
    interleaved = chain.from_iterable(zip_longest(*triples))
    return list(islice((sample for sample in interleaved if sample is not None), number))
