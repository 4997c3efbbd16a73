"""Measures word alignment and the places of inline tags on the phrasebook, whose true alignments are known.

    python scripts/bench/aligners.py --models runs/plain runs/guided
    python scripts/bench/aligners.py --links eflomal.links

Alignment error rate (Och and Ney 2003) over the content words that occur once: of the lexicon aligner on the training
text, of links in Pharaoh's format for the same tokens (--write-text writes them), and of each model's attention to the
test set's sources, given the references. Tags are planted in the test set's sources around such words and phrases of
them; `mt translate` translates them as a page of HTML. A tag is in the right place if exactly the translations of its
words are inside of it; words without a true translation may be on either side. An image belongs before its word, or
before such words next to it.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from mt.bundle.model_folder import load_model
from mt.data.ragged import Ragged
from mt.data.word_alignment import align_words
from mt.decoding.alignment import align_units
from mt.decoding.attention_weights import aligning_weights, attention_weights
from mt.storage.run_dir import ModelDir

sys.path.insert(0, str(Path(__file__).parents[1]))

from phrasebook.corpus import Sentence, corpus
from phrasebook.links import tokens, true_links

Links = Iterable[tuple[int, int]]
KINDS = ("word", "phrase", "nested", "adjacent", "image")


def main() -> int:
    """Print error rates and the shares of tags in their places."""
    arguments = _arguments()
    train, test = corpus()["train"], corpus()["test"]
    if arguments.write_text:
        rows = (f"{' '.join(tokens(one.english))} ||| {' '.join(tokens(one.italian))}\n" for one in train)
        arguments.write_text.write_text("".join(rows), encoding="utf-8")
    if arguments.links:
        lines = arguments.links.read_text().splitlines()
        print(f"{arguments.links.name}: {error_rate(train, [parsed(line) for line in lines])}")
    if not arguments.models or arguments.links:
        print(f"lexicon aligner: {error_rate(train, lexicon_links(_pairs(train)))}", flush=True)
    for path in arguments.models:
        print(
            f"{path.name}: attention to references: {error_rate(test, attention_links(path, _pairs(test)))}", flush=True
        )
        print(f"{path.name}: tags: {place_tags(path, test, random.Random(arguments.seed))}", flush=True)
    return 0


def error_rate(sentences: Sequence[Sentence], found: Sequence[Links]) -> str:
    """Return the error rate of the links between words that have true links."""
    right = n_found = n_true = 0
    for sentence, links in zip(sentences, found, strict=True):
        truth = true_links(sentence)
        sources, targets = ({link[side] for link in truth} for side in (0, 1))
        judged = {(s, t) for s, t in links if s in sources and t in targets}
        right, n_found, n_true = right + len(judged & truth), n_found + len(judged), n_true + len(truth)
    recall, precision = right / n_true, right / max(1, n_found)
    rate = 1 - 2 * right / (n_found + n_true)
    return f"AER {rate:.2%} (precision {precision:.2%}, recall {recall:.2%}, {n_true:,} links)"


def parsed(line: str) -> Links:
    """Return links that are written in Pharaoh's format."""
    return [(int(s), int(t)) for s, _, t in (link.partition("-") for link in line.split())]


def attention_links(path: Path, pairs: Iterable[tuple[str, str]]) -> list[Links]:
    """Return the links of each target token to the source token that a run's model attends to most."""
    loaded = load_model(ModelDir(path / "model"), torch.device("cpu"))
    pair, links = loaded.tokenizers, list[Links]()
    for source, target in pairs:
        ids = pair.source.encode(source), pair.target.encode(target)
        is_guided = loaded.model.is_guided
        weights = aligning_weights(attention_weights(loaded.model, *ids), is_guided)[int(is_guided) :]
        pieces = pair.source.tokens(ids[0]), pair.target.tokens(ids[1])
        units = align_units(source, target, pieces, weights[:, 1:-1].tolist())
        starts = {match.start(): n for n, match in enumerate(re.finditer(r"\w+|[^\w\s]", source))}
        links.append([(starts[unit.origin], place) for place, unit in enumerate(units)])
    return links


def lexicon_links(pairs: Iterable[tuple[str, str]]) -> list[Links]:
    """Return the links of the aligner of `mt data align-words`, for tokens in lower case."""
    sides = []
    for texts in zip(*pairs, strict=True):
        vocab: dict[str, int] = {}
        ids = [[vocab.setdefault(word, len(vocab)) for word in tokens(text)] for text in texts]
        sides.append(Ragged(np.concatenate(ids), np.cumsum([0, *map(len, ids)])))
    return list(align_words(*sides))


def _pairs(sentences: Iterable[Sentence]) -> list[tuple[str, str]]:
    return [(one.english, one.italian) for one in sentences]


def place_tags(path: Path, sentences: Sequence[Sentence], rng: random.Random) -> str:
    """Plant tags of all kinds, translate, and return the share of each in its place."""
    planted = [(kind, one, *made) for one in sentences for kind in KINDS if (made := plant(kind, one, rng))]
    with tempfile.TemporaryDirectory() as folder:
        page, output = Path(folder) / "page.html", Path(folder) / "output.html"
        page.write_text("".join(f"<p>{html}</p>\n" for _, _, html, _ in planted), encoding="utf-8")
        command = [sys.executable, "-m", "mt", "translate", str(page), "--model", str(path), "--output", str(output)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = output.read_text(encoding="utf-8").splitlines()
    counts, right, valid = Counter[str](), Counter[str](), 0
    for (kind, one, html, wanted), line in zip(planted, lines, strict=True):
        text, spans = read_tags(line.removeprefix("<p>").removesuffix("</p>"))
        valid += spans is not None and sorted(spans) == sorted(read_tags(html)[1] or ())
        judged = is_right(wanted, spans or {}, one, text)
        if judged is not None:
            counts[kind] += 1
            right[kind] += judged
    shares = ", ".join(f"{kind} {right[kind] / counts[kind]:.1%} of {counts[kind]}" for kind in KINDS)
    return (
        f"valid {valid / len(planted):.1%} of {len(planted)}; in place {right.total() / counts.total():.1%}: {shares}"
    )


def plant(kind: str, sentence: Sentence, rng: random.Random) -> tuple[str, dict[str, tuple[int, int]]] | None:
    """Return a source with tags, and the tokens (first, behind the last) that each is around; None if none fits."""
    linked = sorted(s for s, _ in true_links(sentence))
    spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", sentence.english)]
    if len(linked) < 2 or len(spans) < 4:
        return None
    word = rng.choice(linked)
    # Only such words have known translations, so phrases begin and end with them.
    other = rng.choice([one for one in linked if one != word])
    first, last = min(word, other), max(word, other) + 1
    pairs = [(a, b) for a, b in pairwise(linked) if b == a + 1]
    wanted = {
        "word": {"b": (word, word + 1)},
        "phrase": {"a": (first, last)},
        "nested": {"a": (first, last), "i": (word, word + 1)},
        "adjacent": {"b": (pairs[0][0], pairs[0][1]), "i": (pairs[0][1], pairs[0][1] + 1)} if pairs else {},
        "image": {"img": (word, word)},
    }[kind]
    if not wanted or any(begin >= end for tag, (begin, end) in wanted.items() if tag != "img"):
        return None
    parts, text = list[str](), sentence.english
    for number, (begin, end) in enumerate(spans):
        parts.append(text[spans[number - 1][1] if number else 0 : begin])
        parts += [f"<{tag}>" for tag, (start, _) in wanted.items() if start == number]
        parts.append(text[begin:end])
        parts += [f"</{tag}>" for tag, (_, stop) in reversed(wanted.items()) if stop == number + 1 and tag != "img"]
    return "".join(parts), wanted


def read_tags(html: str) -> tuple[str, dict[str, tuple[int, int]] | None]:
    """Return the text, and the tokens that each tag is around; None if the tags are unbalanced, or one is repeated."""
    spans, stack, text = dict[str, tuple[int, int]](), list[str](), ""
    for part in re.split(r"(</?\w+>)", html):
        tag = part.strip("</>")
        place = len(tokens(text))
        if part == "<img>" or (part.startswith("<") and part[1:2] != "/"):
            if tag in spans:
                return text, None
            spans[tag] = (place, place)
            stack += [tag] if tag != "img" else []
        elif part.startswith("</"):
            if not stack or stack.pop() != tag:
                return text, None
            spans[tag] = (spans[tag][0], place)
        else:
            text += part
    return text, None if stack else spans


def is_right(
    wanted: dict[str, tuple[int, int]], found: dict[str, tuple[int, int]], sentence: Sentence, text: str
) -> bool | None:
    """Return whether all tags are in their place; None where a word has no translation, or a tag cannot be placed."""
    links = dict(true_links(Sentence(sentence.english, text, sentence.pattern, sentence.parts)))
    if set(links) != {s for s, _ in true_links(sentence)}:
        return None  # another translation
    for tag, (first, last) in wanted.items():
        if tag == "img":
            before = max([-1, *(t for t in links.values() if t < links[first])])
            if not before < found.get(tag, (-1, -1))[0] <= links[first]:
                return False
            continue
        inside = {t for s, t in links.items() if first <= s < last}
        outside = set(links.values()) - inside
        if not inside or any(min(inside) < t < max(inside) for t in outside):
            return None  # the translations of its words are not contiguous
        begin, end = found.get(tag, (0, 0))
        if not all(begin <= t < end for t in inside) or any(begin <= t < end for t in outside):
            return False
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, nargs="*", default=[], help="run folders, trained on the phrasebook")
    parser.add_argument("--links", type=Path, help="of the training text, by another aligner")
    parser.add_argument("--write-text", type=Path, help="write the training text's tokens for another aligner")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
