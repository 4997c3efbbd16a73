"""Vocabulary pruning: a tokenizer and a model reduced to the pieces that a corpus needs.

Embeddings are most of a multilingual model, and one language pair needs a small part of them. Text is split as before
wherever it needs no pruned piece:

* unigram: a piece that is not on the best path of a sentence has no influence on it. The pieces of the smallest and the
  largest score stay, since the scores of unknown characters and user-defined symbols are computed from them;
* BPE: a merge that is not performed has no influence, so kept pieces and those that they are merged from suffice.

Single characters, bytes, symbols and language tags stay, so no text becomes unknown that was known.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt.config import Config
from mt.console import shortened
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import normalized
from mt.data.tokenizer_kinds import TextTokenizer, TokenizerPair
from mt.errors import InputError
from mt.text.lines import read_lines, take_block

_LINES = 10_000  # encoded at once
_UNIGRAM, _BPE = 1, 2  # of SentencePiece's TrainerSpec.ModelType


@dataclass(frozen=True)
class Pruned:
    """A pruned vocabulary, and the configuration of its model."""

    config: Config
    tokenizers: TokenizerPair
    source_ids: Tensor  # for each of the remaining ids (U,) the old one
    target_ids: Tensor
    lines: int  # of the corpus; a line for both tokenizers counts twice
    unchanged: int  # lines that are split into the same pieces as before

    def weights(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Select the rows of embeddings and output that remain."""
        sides = {"source_embedding.tokens": self.source_ids, "target_embedding.tokens": self.target_ids}
        ids = {**sides, "output": self.target_ids}
        return {
            name: tensor[ids[module]] if (module := name.rpartition(".")[0]) in ids else tensor
            for name, tensor in weights.items()
        }


def prune(config: Config, tokenizers: TokenizerPair, corpus: Sequence[Path]) -> Pruned:
    """Reduce a model's vocabulary to the pieces that text files need.

    A file with a suffix that is one of the model's languages, as train.en, is in that language; others are in all.

    Raises:
        InputError: a tokenizer is not a SentencePiece model of unigrams or BPE, a file cannot be read, or
            there is no text of source or target.
    """
    sides = config.data.source_lang, config.data.target_lang
    files = [[path for path in corpus if _is_in(path, codes, {*sides[0], *sides[1]})] for codes in sides]
    for codes, chosen in zip(sides, files, strict=True):
        if not any(map(any, _batches(chosen))):
            message = f"--prune {corpus[0]}: no text of {shortened(', '.join(codes))}, whose pieces would be lost"
            raise InputError(message, "name files with text of both languages")
    if tokenizers.source is tokenizers.target:  # with one model
        files = [[*corpus]]
    if tokenizers.shared:
        source, kept = _reduced(tokenizers.source, files)
        pair, ids = TokenizerPair(source, source.counterpart), [kept, kept]
    else:
        reduced = [_reduced(tokenizer, [paths]) for tokenizer, paths in zip(tokenizers, files, strict=True)]
        pair, ids = TokenizerPair(reduced[0][0], reduced[1][0]), [kept for _, kept in reduced]
    counts = [_compare(*side) for side in zip(tokenizers, pair, files, strict=False)]
    lines, unchanged = (sum(column) for column in zip(*counts, strict=True))
    settings = config.tokenizer.model_copy(update={"vocab_size": max(300, pair.source.vocab_size)})
    pruned = config.model_copy(update={"tokenizer": settings})
    return Pruned(pruned, pair, torch.tensor(ids[0]), torch.tensor(ids[1]), lines, unchanged)


def _is_in(path: Path, codes: Sequence[str], known: set[str]) -> bool:
    named = {suffix[1:] for suffix in path.suffixes} & known
    return not named or bool(named & {*codes})


def _batches(files: Sequence[Path]) -> Iterator[list[str]]:
    for path in files:
        lines = map(normalized, read_lines(path))
        while batch := take_block(lines, _LINES):
            yield batch


def _compare(before: TextTokenizer, after: TextTokenizer, files: Sequence[Path]) -> tuple[int, int]:
    """Return the number of lines, and of those that both tokenizers split into the same pieces."""
    lines = unchanged = 0
    for batch in _batches(files):
        encoded = zip(before.encode_batch(batch), after.encode_batch(batch), strict=True)
        lines += len(batch)
        unchanged += sum(before.tokens(old) == after.tokens(new) for old, new in encoded)
    return lines, unchanged


def _reduced(tokenizer: TextTokenizer, files: Sequence[Sequence[Path]]) -> tuple[SentencePieceTokenizer, list[int]]:
    """Return a tokenizer with the pieces that each of its models needs for its files, and the old ids of these."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        raise InputError("--prune: the model's tokenizer is not SentencePiece, so its vocabulary cannot be reduced")
    models = [_parsed(model) for model in tokenizer.models]
    needed = set().union(*map(_needed, models, files))
    for model in models:
        if model.trainer_spec.model_type == _BPE:
            ranks = {each.piece: each.score for each in model.pieces}
            needed = needed.union(*(_merged(piece, ranks) for piece in needed))
    pieces, hidden = tokenizer.pieces, tokenizer.hidden
    kept = [i for i, name in enumerate(pieces) if i in hidden or len(name) == 1 or name in needed]
    for model in models:
        remaining = [each for each in model.pieces if each.piece in needed]
        del model.pieces[:]
        model.pieces.extend(remaining)
        model.trainer_spec.vocab_size = len(remaining)
    return SentencePieceTokenizer([model.SerializeToString() for model in models], [pieces[i] for i in kept]), kept


def _needed(model: Any, files: Sequence[Path]) -> set[str]:
    """Return the pieces that files are split into, and those without which other text would become unknown."""
    from sentencepiece import SentencePieceProcessor

    processor, normal = SentencePieceProcessor(model_proto=model.SerializeToString()), model.SentencePiece.NORMAL
    characters = {each.piece for each in model.pieces if len(each.piece) == 1}
    scored = [each for each in model.pieces if each.type == normal]
    needed = {pick(scored, key=lambda each: each.score).piece for pick in (min, max) if scored}
    needed |= {each.piece for each in model.pieces if each.type != normal or not characters.issuperset(each.piece)}
    for batch in _batches(files):
        needed.update(*processor.encode(batch, out_type=str, num_threads=1))
    return needed | characters


def _merged(piece: str, scores: Mapping[str, float]) -> set[str]:
    """Return the pieces that BPE merges on the way to a piece, which are the same in every sentence."""
    parts, merged = list(piece), set()
    while len(parts) > 1:
        pairs = [left + right for left, right in pairwise(parts)]
        best = max(range(len(pairs)), key=lambda i: (scores.get(pairs[i], -math.inf), -i))
        if pairs[best] not in scores:
            break
        merged.add(pairs[best])
        parts[best : best + 2] = [pairs[best]]
    return merged


def _parsed(content: bytes) -> Any:
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise InputError("--prune needs a package that is not installed (protobuf)", "pip install protobuf") from None
    model = sentencepiece_model_pb2.ModelProto.FromString(content)
    if model.trainer_spec.model_type not in (_UNIGRAM, _BPE):
        raise InputError("--prune: the model's tokenizer splits text into words or characters", "import all of it")
    return model
