"""Lexicons: the words of a parallel corpus that translate each other, learned with IBM Model 1.

N lines   S words of all lines   E entries of the lexicon
"""

import re
from collections.abc import Iterable
from itertools import chain

import numpy as np

from mt.data.ragged import Array, Ragged, top_of_each, value_pairs
from mt.data.shortlist import model_1
from mt.text.lines import nfc
from mt.text.words import IN_WORD, UNSPACED

Lexicon = tuple[Array, Array, Array]  # source word, target word and gain of each entry, each (E,)

LEXICON_PAIRS, _MAX_WORDS = 40_000, 60  # lines to learn from, and words of such a line
_MAX_PAIRS = 5_000_000  # pairs of words, some 60 bytes each
_TRANSLATIONS = 5  # of a word
_MIN_PROBABILITY, _MIN_GAIN, _MAX_GAIN = 0.05, 0.7, 6.0  # of a translation; gain: log of p(t | s) over p(t)
_ASCII_WORD, _WORD = re.compile(r"\w+"), re.compile(rf"\w[{IN_WORD}]*")
# With Korean, whose spaced words have too many forms to be counted whole.
_UNSPACED = re.compile(f"[{UNSPACED}\u0f00-\u0fff\u1100-\u11ff\uac00-\ud7af\U00020000-\U0003ffff]")


class Side:
    """The distinct words of all lines on one side, as ids."""

    def __init__(self, lines: Iterable[str]) -> None:
        vocab: dict[str, int] = {}
        ids, counts, characters, hashes = list[int](), list[int](), list[int](), list[int]()
        for line in lines:
            words = {vocab.setdefault(word, len(vocab)) for word in words_in(line)}
            ids += sorted(words)
            counts.append(len(words))
            characters.append(len(line))
            hashes.append(hash(line))
        self.vocab = vocab  # the id of each word
        self.ids = np.array(ids, np.int64)  # (S,), of all lines, one after another, in ascending order within a line
        self.counts = np.array(counts, np.int64)  # (N,), words of each line
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])  # (N + 1,), where each line begins in `ids`
        self.characters = np.array(characters, np.float64)  # (N,), length of each line
        self.hashes = np.array(hashes, np.int64)  # (N,), of the lines


def words_in(line: str) -> list[str]:
    """Split a line into lower-case words; in scripts without spaces, such as Chinese, into pairs of characters."""
    text = nfc(line).lower()
    if text.isascii():
        return _ASCII_WORD.findall(text)
    words: list[str] = _WORD.findall(text)
    if not _UNSPACED.search(text):
        return words
    pairs = ([w[i : i + 2] for i in range(len(w) - 1)] if len(w) > 1 and _UNSPACED.match(w) else [w] for w in words)
    return list(chain.from_iterable(pairs))


def learn_lexicon(source: Side, target: Side, src_lines: Array, tgt_lines: Array) -> Lexicon:
    """Learn a lexicon, sorted by source word, from the lines of source and target with the given numbers (N,) each.

    Shared words of more than three letters, taken for names, and shared numbers also translate themselves.
    """
    sample = np.unique(np.linspace(0, len(src_lines) - 1, LEXICON_PAIRS).astype(np.int64))[: len(src_lines)]
    n_words_of = np.stack([source.counts[src_lines[sample]], target.counts[tgt_lines[sample]]])
    is_usable = (n_words_of.min(axis=0) > 0) & (n_words_of.max(axis=0) <= _MAX_WORDS)
    n_pairs = int(n_words_of[:, is_usable].prod(axis=0).sum())
    usable = sample[is_usable][:: max(1, -(-n_pairs // _MAX_PAIRS))]
    src_words = Ragged(source.ids, source.starts).select(src_lines[usable])
    tgt_words = Ragged(target.ids, target.starts).select(tgt_lines[usable])
    places, positions = value_pairs(src_words, tgt_words)
    n_targets = len(target.vocab) + 1
    codes = src_words.values[places] * n_targets + tgt_words.values[positions]
    codes, index, seen = np.unique(codes, return_inverse=True, return_counts=True)
    src, tgt = np.divmod(codes, n_targets)
    probabilities = model_1(src, [(index, positions)])
    share = np.bincount(target.ids, minlength=n_targets) / max(1, len(target.counts))  # of lines that have a word
    gains = np.log(np.maximum(probabilities, 1e-9) / np.maximum(share[tgt], 1e-9))
    # A pair seen only once is likely a coincidence.
    kept = (seen > 1) & (probabilities > _MIN_PROBABILITY) & (gains > _MIN_GAIN)
    same = [(i, target.vocab[w]) for w, i in source.vocab.items() if w in target.vocab and (len(w) > 3 or w.isdigit())]
    copies = np.array(same, np.int64).reshape(-1, 2)  # names, numbers and the like
    src, tgt = np.concatenate([src[kept], copies[:, 0]]), np.concatenate([tgt[kept], copies[:, 1]])
    gains = np.concatenate([gains[kept], np.log(0.5 / np.maximum(share[copies[:, 1]], 1e-9))]).clip(0, _MAX_GAIN)
    best = top_of_each(src, gains, _TRANSLATIONS)
    return src[best], tgt[best], gains[best]


def word_translations(source: Side, target: Side) -> dict[str, list[str]]:
    """Return the translations of each source word, in lower case, the likeliest first; the sides' lines are aligned."""
    lines = np.arange(len(source.counts))
    src_ids, tgt_ids, _ = learn_lexicon(source, target, lines, lines)
    src_words, tgt_words = list(source.vocab), list(target.vocab)
    translations: dict[str, list[str]] = {}
    for src, tgt in zip(src_ids.tolist(), tgt_ids.tolist(), strict=True):
        translations.setdefault(src_words[src], []).append(tgt_words[tgt])
    return translations
