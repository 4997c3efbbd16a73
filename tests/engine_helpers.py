"""Small random models with their converted twins, comparison of the two engines, and commands in this process."""

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from config_helpers import SMALLEST
from model_helpers import scramble
from mt.bundle.model_folder import build_model, new_model
from mt.bundle.to_ctranslate2 import convert
from mt.cli import app
from mt.config import Config, parse_config
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID, SPECIALS, UNK_ID, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.ctranslate2_engine import CTranslate2Engine
from mt.decoding.engine import Hypothesis, SearchOptions
from mt.decoding.settings import TranslationSettings
from mt.decoding.torch_engine import TorchEngine
from mt.model.transformer import Transformer
from mt.storage.run_dir import ModelDir

ENGLISH = ["A dog runs over the grass.", "Two men are talking.", "The old house is on the hill."]
GERMAN = ["Ein Hund läuft über das Gras.", "Zwei Männer reden.", "Das alte Haus steht auf dem Hügel."]
SHAPE = ["model.d_model=16", "model.n_heads=2", "model.d_ff=24", "model.dropout=0", "data.max_length=40"]
LAYERS = ["model.encoder_layers=1", "model.decoder_layers=1"]
LIVELY = ["model.positions=learned", "model.norm=pre", "model.activation=swiglu", "model.tie_embeddings=false"]
# A model that can be pushed: see `push_all`.
PUSHABLE = ["model.norm=post", "model.tie_embeddings=false"]


def translation_settings(max_source_tokens: int = 40, target_lang: str = "de", **changes: Any) -> TranslationSettings:
    """Return the settings of a model whose sources have no known language."""
    of_model = {"shared_vocabulary": False, "max_positions": 1000, "batch_tokens": 1000}
    of_search = {"compute_type": "float32", "shortlist": False, "search": SearchOptions()}
    return TranslationSettings(target_lang, max_source_tokens=max_source_tokens, **of_model | of_search | changes)


@functools.cache
def tokenizers(shared: bool) -> TokenizerPair:
    """Return one shared tokenizer, or two of different sizes so that a mix-up is noticed."""
    if shared:
        both = BpeTokenizer.train(ENGLISH + GERMAN, 300)
        return TokenizerPair(both, both)
    return TokenizerPair(BpeTokenizer.train(ENGLISH, 288), BpeTokenizer.train(GERMAN, 296))


def configured(*changes: str) -> Config:
    # Random models write loops, and other programs leave them.
    return parse_config(SMALLEST, "x.yaml", [*SHAPE, *LAYERS, "decoding.retry_loops=false", *changes])


@dataclass
class Twins:
    """A torch model, and the folder with its CTranslate2 conversion."""

    folder: ModelDir
    config: Config
    tokenizers: TokenizerPair
    model: Transformer

    def fast(self, compute_type: str = "float32", **changes: Any) -> CTranslate2Engine:
        settings = TranslationSettings.of(self.config)
        where = self.folder.converted(compute_type)
        return CTranslate2Engine(where, self.tokenizers, settings, compute_type=compute_type, **changes)

    def slow(self) -> TorchEngine:
        return TorchEngine(self.model, self.config.decoding.batch_tokens)


def random_model(config: Config, seed: int = 0, std: float = 0.3) -> Transformer:
    """Return a model with random weights, biases and norms.

    Target positions outweigh tokens, and EOS outweighs both, so that translations vary and end on their own.
    """
    model = build_model(config, tokenizers(config.tokenizer.shared))
    scramble(model, seed, std)
    with torch.no_grad():
        model.target_embedding.tokens.weight *= 0.3
        model.output.weight[EOS_ID] *= 10 if config.model.tie_embeddings else 4
        if config.model.positions == "learned":
            model.target_embedding.positions.table *= 4
    return model.eval()


def ending_model(
    config: Config, ids: Sequence[Sequence[int]], options: SearchOptions, lengths_wanted: int = 1
) -> Transformer:
    """Return the first random model whose translations of some sentences end on their own, at different lengths.

    Args:
        config: its shape.
        ids: the sentences.
        options: how to search.
        lengths_wanted: the number of different lengths in greedy search.
    """
    bound = min(options.longest(len(sentence) + 2, config.data.max_length) for sentence in ids)
    for seed in range(200):
        model = random_model(config, seed)
        for width in (1, options.beam_size):  # most models end in greedy search or never
            found = TorchEngine(model, 4096).translate(ids, replace(options, beam_size=width, n_best=width))
            lengths = {len(h.ids) for hypotheses in found for h in hypotheses}
            if max(lengths) >= bound or len(lengths) < lengths_wanted:
                break
        else:
            if len(lengths) > 2 and max(lengths) > 3:
                return model
    raise AssertionError("no such model")


def twins(folder: Path, *changes: str, model: Callable[[Config], Transformer] = random_model) -> Twins:
    config = configured(*changes)
    pair, ours = tokenizers(config.tokenizer.shared), model(config)
    convert(ours, config, pair, ModelDir(folder))
    return Twins(ModelDir(folder), config, pair, ours)


def whole_folder(root: Path, *changes: str, pair: TokenizerPair | None = None) -> ModelDir:
    """Write a model folder as training does."""
    config, folder = configured(*changes), ModelDir(root)
    pair = pair or tokenizers(config.tokenizer.shared)
    weights = {name: parameter.detach() for name, parameter in random_model(config).named_parameters()}
    with new_model(folder, config, pair, weights, {}) as temporary:
        temporary.readme.write_text("# A model\n")
    return folder


def reseal(folder: ModelDir) -> None:
    """Update the manifest to the folder's present files."""
    manifest = json.loads(folder.manifest.read_text())
    for name, entry in manifest["files"].items():
        content = (folder.root / name).read_bytes()
        entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    folder.manifest.write_text(json.dumps(manifest))


def push_all(model: Transformer, strengths: dict[int, float]) -> None:
    """Make tokens likelier (or, if negative, less likely) at every step; for PUSHABLE models."""
    with torch.no_grad():
        model.decoder[-1].residuals[-1].norm.bias[0] += 5
        model.output.weight[:, 0] = 0.0
        for token, strength in strengths.items():
            model.output.weight[token, 0] += strength


def endless_model(config: Config) -> Transformer:
    """Return a model that never ends a translation on its own, nor gives a special token any probability."""
    model = random_model(config)
    push_all(model, dict.fromkeys((PAD_ID, UNK_ID, SOS_ID, EOS_ID), -20.0))
    return model


def sentences(lengths: Sequence[int], vocab: int, seed: int = 0) -> list[list[int]]:
    """Return random token ids without specials."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(len(SPECIALS), vocab, (n,), generator=generator).tolist() for n in lengths]


def token_log_probs(model: Transformer, source: Sequence[int], target: Sequence[int]) -> list[float]:
    """Return torch's log-probabilities of a translation's tokens and EOS, with no token forbidden."""
    with torch.no_grad():
        logits = model(torch.tensor([[SOS_ID, *source, EOS_ID]]), torch.tensor([[SOS_ID, *target]]))[0]
    rows = logits.log_softmax(dim=-1)
    return [rows[place, token].item() for place, token in enumerate([*target, EOS_ID])]


def fast_log_probs(engine: CTranslate2Engine, twins: Twins, source: Sequence[int], target: Sequence[int]) -> list:
    """Return CTranslate2's."""
    pieces = [twins.tokenizers.source.tokens(source)], [twins.tokenizers.target.tokens(target)]
    [scored] = engine._translator.score_batch(*pieces, max_input_length=0)
    return scored.log_probs


def same(fast: list[list[Hypothesis]], slow: list[list[Hypothesis]], tolerance: float = 1e-3) -> None:
    """Check that two engines found the same."""
    assert [[h.ids for h in found] for found in fast] == [[h.ids for h in found] for found in slow]
    for found, expected in zip(fast, slow, strict=True):
        assert [h.log_prob for h in found] == pytest.approx([h.log_prob for h in expected], rel=1e-5, abs=tolerance)
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], rel=1e-5, abs=tolerance)


def both_find(
    twins: Twins, ids: list[list[int]], options: SearchOptions, prefixes: Sequence[Sequence[int]] = ()
) -> list[list[Hypothesis]]:
    """Translate with both engines, check that they agree, and return the hypotheses."""
    found = twins.fast().translate(ids, options, prefixes)
    same(found, twins.slow().translate(ids, options, prefixes))
    return found


def run_cli(*arguments: str | Path) -> Result:
    """Run a command in this process, which has imported torch already."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done


def printed(*arguments: str | Path) -> str:
    return run_cli(*arguments).stdout


def printed_lines(*arguments: str | Path) -> list[str]:
    return printed(*arguments).split("\n")[:-1]
