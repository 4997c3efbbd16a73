"""Whether what was exported computes what our model computes.

B sentences   S, T source and target positions   V target vocabulary
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID, SPECIALS, BpeTokenizer
from mt.errors import MtError
from mt.extras.export.subject import Subject

TOLERANCE = 1e-4
_SENTENCES = 3
_MOST_TEXTS = 2000
_ODD_TEXTS = ("", "  two  spaces ", "a </s> that is text, and <0x41>", "1,234.50 €", "e\u0301 ☃ 日本")


def random_batch(subject: Subject) -> tuple[Tensor, Tensor]:
    """Sources (B, S) between SOS and EOS, of different lengths, and targets (B, T) behind SOS, all of one length."""
    longest = min(30, subject.config.data.max_length)
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int, vocab_size: int) -> Tensor:
        return torch.randint(len(SPECIALS), vocab_size, (count,), generator=generator)

    sources = torch.full((_SENTENCES, longest), PAD_ID)
    for row, length in enumerate((longest, 3, max(3, longest // 2))):
        inner = tokens(length - 2, subject.tokenizers.source.vocab_size)
        sources[row, :length] = torch.cat([torch.tensor([SOS_ID]), inner, torch.tensor([EOS_ID])])
    targets = tokens(_SENTENCES * longest, subject.tokenizers.target.vocab_size).view(_SENTENCES, longest)
    targets[:, 0] = SOS_ID
    return sources, targets


def require_equal(who: str, found: Tensor, expected: Tensor, what: str = "logits") -> str:
    """Compares logits, or what else they are called, of the same shape.

    Returns:
        what to say about it.

    Raises:
        MtError: they differ.
    """
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE):
        off = f"by {(found - expected).abs().max():.2g}" if found.shape == expected.shape else "in shape"
        raise MtError(f"{who} computes something else than the model: {what} differ {off}", "please report it")
    return f"{who} computes what the model does: {what} differ by at most {(found - expected).abs().max():.1e}"


def sample_texts(tokenizer: BpeTokenizer, sentences: Sequence[str]) -> list[str]:
    """Text to compare tokenizers with: given sentences, odd ones, and one that has every piece in it."""
    every = tokenizer.decode(range(len(SPECIALS), tokenizer.vocab_size))
    return [*sentences[:_MOST_TEXTS], *_ODD_TEXTS, every]
