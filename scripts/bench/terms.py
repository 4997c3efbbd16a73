"""Translates a test set with a glossary of words that its references have, and without, and compares.

    python scripts/bench/terms.py multi30k/train multi30k/test_2016_flickr en de --model runs/multi30k-en-de

The glossary has the words of the test sources with a translation that a lexicon, learned from the training text, knows
and that most references have. A rare one has the least frequent of those translations instead, which few models write
on their own; the sentences are then those whose references have it. Printed are the share of sentences that have their
terms, BLEU, and the time. With --placeholders, terms are replaced by text that the model would have to copy.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mt.api.loading import load
from mt.api.translation import Translator
from mt.data.glossary import Glossary
from mt.data.lexicon import Side, word_translations
from mt.data.terms import Terms
from mt.metrics.scores import corpus_bleu

PLACEHOLDERS = {"number": "{}", "large number": "739{}", "name": "Xylo{}", "tag": "<{}>", "capitals": "TERM{}"}


def main() -> int:
    """Print a row for each glossary."""
    arguments = _arguments()
    sides = [
        [Path(f"{path}.{code}").read_text(encoding="utf-8").splitlines() for code in arguments.languages]
        for path in (arguments.train, arguments.test)
    ]
    usual, rare = choose(sides[0], sides[1], arguments.number)
    load_one = {"model": arguments.model, "engine": arguments.engine}
    for name, entries in (("usual", usual), ("rare", rare)):
        path = arguments.work / f"{name}.tsv"
        path.write_text("".join(f"{source}\t{target}\n" for source, target in entries.items()), encoding="utf-8")
        terms, test = Glossary(path).terms(*arguments.languages), sides[1]
        if name == "rare":
            found = [(terms.find(source), source, reference) for source, reference in zip(*test, strict=True)]
            chosen = [pair for terms_of, *pair in found if terms_of and all(term.is_in(pair[1]) for term in terms_of)]
            test = [list(side) for side in zip(*chosen, strict=True)]
        for label, model in (("without", load(**load_one)), ("with", load(**load_one, glossary=path))):
            print(f"{name} glossary, {label}: {measure(model, terms, test)}", flush=True)
        if name == "usual" and arguments.placeholders:
            for kind, pattern in PLACEHOLDERS.items():
                print(f"placeholder {kind}: {survival(load(**load_one), terms, test, pattern)}", flush=True)
    return 0


def choose(train: list[list[str]], test: list[list[str]], number: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return the usual translations of words, and the rarest ones, each most frequent in the test sources."""
    known = word_translations(*map(Side, train))
    counts: Counter[str] = Counter()
    translations: dict[str, Counter[str]] = {}  # of each word, by the number of references that have them
    for source, target in zip(*test, strict=True):
        nouns = {word.lower(): word for word in re.findall(r"(?<!^)\b[A-ZÄÖÜ]\w+", target)}
        for word in set(re.findall(r"\b[a-z]{3,}\b", source)):
            counts[word] += 1
            candidates = [nouns[noun] for noun in known.get(word, ()) if noun in nouns]
            translations.setdefault(word, Counter()).update(candidates)
    usual, rare = {}, {}
    for word, count in counts.most_common():
        ranked = translations[word].most_common()
        if ranked and len(usual) < number and ranked[0][1] > 0.6 * count:
            usual[word] = ranked[0][0]
        if len(ranked) > 1 and len(rare) < number:
            rare[word] = ranked[-1][0]
    return usual, rare


def measure(model: Translator, terms: Terms, test: list[list[str]]) -> str:
    """Return how many sentences have their terms, BLEU, and the seconds."""
    started = time.perf_counter()
    translations = model.translate(test[0])
    seconds = time.perf_counter() - started

    def complete() -> Iterator[bool]:
        for source, translation in zip(test[0], translations, strict=True):
            if found := terms.find(source):
                yield all(term.is_in(translation) for term in found)

    kept = list(complete())
    share = f"{sum(kept)} of {len(kept)} sentences with terms have them ({100 * sum(kept) / len(kept):.1f} %)"
    return f"{share}, BLEU {corpus_bleu(translations, test[1], '13a'):.2f}, {seconds:.1f} s"


def survival(model: Translator, terms: Terms, test: list[list[str]], pattern: str) -> str:
    """Return in how many translations all placeholders are, and BLEU with the terms in their places."""
    rows = [
        (source, reference, found) for source, reference in zip(*test, strict=True) if (found := terms.find(source))
    ]
    texts = []
    for source, _, found in rows:
        ends = [0, *(term.end for term in found)]
        parts = [
            source[end : term.start] + pattern.format(i)
            for i, (end, term) in enumerate(zip(ends, found, strict=False), 1)
        ]
        texts.append("".join([*parts, source[ends[-1] :]]))
    survived, translations = 0, model.translate(texts)
    for row, (_, _, found) in enumerate(rows):
        names = [pattern.format(i) for i, _ in enumerate(found, 1)]
        survived += all(name in translations[row] for name in names)
        for name, term in zip(names, found, strict=True):
            translations[row] = translations[row].replace(name, term.forms[0])
    bleu = corpus_bleu(translations, [reference for _, reference, _ in rows], "13a")
    return f"in {survived} of {len(rows)} translations ({100 * survived / len(rows):.1f} %), BLEU {bleu:.2f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path, help="without the language")
    parser.add_argument("test", type=Path)
    parser.add_argument("languages", nargs=2)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--number", type=int, default=200, help="of terms in a glossary")
    parser.add_argument("--placeholders", action="store_true")
    parser.add_argument("--work", type=Path, default=Path(), help="folder for the glossaries")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
