"""Translations of terms within source text, for models that were trained to use them (Dinu et al. 2019).

Source text in which `dog` has a translation reads `a <2x-term> dog <2x-translation> Hund <2x-end> runs`. These marks
are tags of the tokenizer, which no text contains. In a string, noncharacters of Unicode stand for them.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence

from mt.data.terms import Term
from mt.data.tokenizer_kinds import TextTokenizer
from mt.text.languages import TERM_TAGS
from mt.text.lines import nfc
from mt.text.words import IN_WORD

Span = tuple[int, int, str]  # the characters of a term, and its translation

_MARKS = "\ufdd0\ufdd1\ufdd2"  # term, translation, end
_MAX_TERMS = 3  # of a training sentence
_MIN_LETTERS = 3


def has_marks(tokenizer: TextTokenizer) -> bool:
    """Return True for the tokenizer of a model that was trained with inline terms."""
    return all(tag in tokenizer.tags for tag in TERM_TAGS)


def is_marked(tokenizer: TextTokenizer, text: str) -> bool:
    """Return True for text that has the characters of marks: `encode_annotated` would mistake these for marks."""
    return any(mark in text for mark in _MARKS) and has_marks(tokenizer)


def annotate(text: str, spans: Iterable[Span]) -> str:
    """Put translations behind terms, whose spans are in order and do not overlap; the text must not be marked."""
    parts, done = [], 0
    begin, then, end = list(_MARKS)
    for start, stop, translation in spans:
        parts += [text[done:start], begin, text[start:stop], then, translation, end]
        done = stop
    return "".join([*parts, text[done:]])


def encode_annotated(tokenizer: TextTokenizer, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
    """Encode annotated text; marks are text to a tokenizer without tags for them."""
    if not has_marks(tokenizer):
        return tokenizer.encode_batch(texts, max_tokens)
    ids = dict(zip(_MARKS, map(tokenizer.tags.__getitem__, TERM_TAGS), strict=True))
    split = [re.split(f"([{_MARKS}])", text) for text in texts]
    encoded = iter(tokenizer.encode_batch([part for parts in split for part in parts[::2]], max_tokens))
    return [[i for n, part in enumerate(parts) for i in ([ids[part]] if n % 2 else next(encoded))] for parts in split]


def encode_with_terms(
    tokenizer: TextTokenizer, texts: Sequence[str], terms: Sequence[Sequence[Term]], limit: int
) -> list[list[int]]:
    """Encode texts, with their terms where the tokenizer has marks for them and at most `limit` tokens result."""
    plain = tokenizer.encode_batch(texts)
    if not any(terms) or not has_marks(tokenizer):
        return plain
    spans = ([(term.start, term.end, term.forms[0]) for term in terms_of_text] for terms_of_text in terms)
    annotated = encode_annotated(tokenizer, list(map(annotate, texts, spans)))
    return [
        ids if len(longer) > limit or is_marked(tokenizer, text) else longer
        for text, ids, longer in zip(texts, plain, annotated, strict=True)
    ]


def draw_terms(pair: tuple[str, str], lexicon: Mapping[str, Sequence[str]], rng: random.Random) -> list[Span]:
    """Draw up to three source words with a translation by the lexicon in the target; spans have it as written there.

    The lexicon is in lower case, the likeliest translations first.
    """
    source, target = pair
    written = {nfc(word).lower(): word for word in reversed(re.findall(rf"\w[{IN_WORD}]*", target))}
    spans = []
    for match in re.finditer(rf"\w[{IN_WORD}]{{{_MIN_LETTERS - 1},}}", source):
        translations = [written[word] for word in lexicon.get(nfc(match[0]).lower(), ()) if word in written]
        spans += [(match.start(), match.end(), translations[0])] if translations else []
    return sorted(rng.sample(spans, min(len(spans), rng.randint(1, _MAX_TERMS))))
