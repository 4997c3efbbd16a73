"""Where a model looked while it translated, and which words that makes translations of one another.

L layers   H heads   T target positions, the end counted   S source positions, start and end counted
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mt.data.tokenizer import EOS, EOS_ID, SOS, SOS_ID, SPACE, BpeTokenizer, TokenizerPair
from mt.decoding.translator import Candidate
from mt.model.build import TranslationModel
from mt.model.decoder_only import DecoderOnly


@dataclass(frozen=True)
class Attention:
    """The attention of a translation to its source.

    Attributes:
        source, target: the tokens (S,) and (T,), start and end written out.
        weights: (L, H, T, S); a row adds up to 1; to less in a decoder-only model, which sees the target too.
    """

    source: list[str]
    target: list[str]
    weights: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean over layers and heads (T, S)."""
        return self.weights.mean(dim=(0, 1))


def read_attention(model: TranslationModel, tokenizers: TokenizerPair, candidate: Candidate) -> list[Attention]:
    """Puts a translation into the model that made it once more, and reads its attention to the source.

    Args:
        model: the one that made it.
        tokenizers: its own.
        candidate: a translation.

    Returns:
        one for each part that a long line was translated in; none for an empty line.
    """
    return [
        Attention(
            [SOS, *tokenizers.source.tokens(source), EOS],
            [*tokenizers.target.tokens(target), EOS],
            attention_weights(model, source, target),
        )
        for source, target, _ in candidate.parts
    ]


@torch.no_grad()
def attention_weights(model: TranslationModel, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """Of a translation, both without specials: (L, H, T, S), with start and end."""
    layers: list[Tensor] = []

    def record(module: nn.Module, inputs: tuple[object, ...], _: object) -> None:
        weights: Callable[..., Tensor] = module.weights  # type: ignore[assignment]
        layers.append(weights(*inputs)[0].float().cpu())

    hooks = [module.register_forward_hook(record) for module in _looking_at_source(model)]
    try:
        model.eval()
        model(*(torch.tensor([ids], device=model.device) for ids in ([SOS_ID, *source, EOS_ID], [SOS_ID, *target])))
    finally:
        for hook in hooks:
            hook.remove()
    weights = torch.stack(layers)
    return weights[:, :, -len(target) - 1 :, : len(source) + 2]  # of all positions, where source and target are one


def _looking_at_source(model: TranslationModel) -> Iterable[nn.Module]:
    if isinstance(model, DecoderOnly):
        return [layer.self_attention for layer in model.blocks]
    return [layer.cross_attention for layer in model.decoder]  # type: ignore[misc]


def align_words(attention: Attention) -> list[tuple[int, int]]:
    """Which source word each target word looked at most, as (source word, target word), both counted from 0.

    The weights are the mean over the heads of the last layer but one, which of all layers tells most about alignment
    (Garg et al. 2019, arXiv:1909.02074). A word's pieces are taken together; start, end and tags are no
    words.
    """
    layer = telling(attention.weights)
    source, target = _words(attention.source), _words(attention.target)
    if not source or not target:
        return []
    pairs = []
    for number, word in enumerate(target):
        row = layer[word].sum(dim=0)
        looked = [row[other].sum().item() for other in source]
        pairs.append((max(range(len(source)), key=looked.__getitem__), number))
    return sorted(pairs)


def telling(weights: Tensor) -> Tensor:
    """Of all layers' attention (L, H, T, S) what tells most about alignment (T, S)."""
    return weights[max(0, len(weights) - 2)].mean(dim=0)


def _words(tokens: Sequence[str]) -> list[list[int]]:
    """The places of each word's pieces."""
    words: list[list[int]] = []
    for place, token in enumerate(tokens):
        if token in (SOS, EOS) or BpeTokenizer.is_tag(token):
            continue
        if token.startswith(SPACE) or not words:
            words.append([])
        words[-1].append(place)
    # A space that stands alone begins the word whose pieces follow it; alone it is none.
    return [word for word in words if any(tokens[place] != SPACE for place in word)]


def pharaoh(attentions: Sequence[Attention]) -> str:
    """Alignments in the format that fast_align and Marian write: `0-0 1-2`, source word and target word."""
    pairs, sources, targets = [], 0, 0
    for attention in attentions:
        pairs += [f"{source + sources}-{target + targets}" for source, target in align_words(attention)]
        sources, targets = sources + len(_words(attention.source)), targets + len(_words(attention.target))
    return " ".join(pairs)
