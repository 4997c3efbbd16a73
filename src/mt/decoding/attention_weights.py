"""Attention of a translation to its source, and word alignments read from it.

L layers   H heads   T target positions with EOS   S source positions with SOS and EOS
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mt.data.sentence_format import NO_TAGS, Tags, framed
from mt.data.tokenizer import EOS, SOS, SOS_ID, SPACE, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.candidates import Candidate
from mt.model.build import TranslationModel
from mt.model.decoder_only import DecoderOnly
from mt.model.transformer import alignment_layer


@dataclass(frozen=True)
class Attention:
    """The attention of a translation to its source.

    Attributes:
        source, target: the tokens (S,) and (T,), with SOS and EOS.
        weights: (L, H, T, S); rows sum to 1, or to less in a decoder-only model, which attends to the target too.
        is_guided: the model has learned to align words.
    """

    source: list[str]
    target: list[str]
    weights: Tensor
    is_guided: bool = False


def read_attention(
    model: TranslationModel, tokenizers: TokenizerPair, candidate: Candidate, tags: Tags = NO_TAGS
) -> list[Attention]:
    """Run each part of a translation through the model that made it, and return its attention to the source.

    The `tags` are those of its direction: a candidate's sources have them, its targets do not.
    """
    parts = [(part.source, tags.target(part.target)) for part in candidate.parts]
    return [
        Attention(
            tokenizers.source.tokens(framed(source, model.source_format)),
            [*tokenizers.target.tokens(target), EOS],
            attention_weights(model, source, target),
            model.is_guided,
        )
        for source, target in parts
    ]


@torch.no_grad()
def attention_weights(model: TranslationModel, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """Return the weights (L, H, T, S) of a pair of token ids, given without SOS and EOS."""
    layers, thread = list[Tensor](), threading.get_ident()

    def record(module: nn.Module, inputs: tuple[object, ...], _: object) -> None:
        if threading.get_ident() != thread:  # another thread runs the same model
            return
        weights: Callable[..., Tensor] = module.weights  # type: ignore[assignment]
        layers.append(weights(*inputs)[0].float().cpu())

    blocks = model.blocks if isinstance(model, DecoderOnly) else model.decoder
    name = "self_attention" if isinstance(model, DecoderOnly) else "cross_attention"
    hooks = [getattr(layer, name).register_forward_hook(record) for layer in blocks]
    try:
        model.eval()
        sides = framed(source, model.source_format), [SOS_ID, *target]
        model(*(torch.tensor([ids], device=model.device) for ids in sides))
    finally:
        for hook in hooks:
            hook.remove()
    # A decoder-only model has source and target in one sequence.
    return torch.stack(layers)[:, :, -len(target) - 1 :, : len(sides[0])]


def aligning_weights(weights: Tensor, is_guided: bool) -> Tensor:
    """Return the weights (T, S), from (L, H, T, S), of the layer that aligns words: its guided head, or its mean."""
    layer = weights[alignment_layer(len(weights))]
    return layer[0] if is_guided else layer.mean(dim=0)


def is_text(token: str) -> bool:
    """Return False for SOS, EOS and language tags."""
    return token not in (SOS, EOS) and not BpeTokenizer.is_tag(token)


def _words(tokens: Sequence[str]) -> list[list[int]]:
    """Return the positions of each word's pieces; without punctuation, unless there is nothing else."""
    words: list[list[int]] = []
    for position, token in enumerate(tokens):
        if not is_text(token):
            continue
        if token.startswith(SPACE) or not words:
            words.append([])
        words[-1].append(position)
    # A space token begins the word of the pieces behind it; without any it is no word.
    words = [word for word in words if any(tokens[position] != SPACE for position in word)]
    return [[position for position in word if any(map(str.isalnum, tokens[position]))] or word for word in words]


def word_pairs(attentions: Sequence[Attention]) -> list[tuple[int, int]]:
    """Return pairs (source word, target word): each target word with the source word that it attends to most.

    The weights of a word's pieces are summed; SOS, EOS and language tags are no words. Words are counted from 0, across
    the parts of a line.
    """
    pairs, n_source, n_target = [], 0, 0
    for attention in attentions:
        weights = aligning_weights(attention.weights, attention.is_guided)
        # A guided head aligns a token when it reads it, one position later.
        weights = weights[int(attention.is_guided) :]
        source, target = _words(attention.source), _words(attention.target)
        for number, positions in enumerate(target if source else ()):
            row = weights[positions].sum(dim=0)
            sums = [row[source_positions].sum().item() for source_positions in source]
            pairs.append((n_source + max(range(len(source)), key=sums.__getitem__), n_target + number))
        n_source, n_target = n_source + len(source), n_target + len(target)
    return sorted(pairs)
