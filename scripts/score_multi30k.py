"""Scores Multi30k translations in two ways: by sacreBLEU's default, and tokenised as in papers on that data set.

    python scripts/score_multi30k.py --lang de --reference data/multi30k/test_2016_flickr.de runs/*/eval/test.beam

Papers (Wu et al., ACL 2021, and those they compare with) report BLEU on tokens of lower-cased text. The data set's own
script makes them with Moses: lowercase.perl, normalize-punctuation.perl -l LANG, tokenizer.perl -l LANG. Here
sacremoses, a port of these, does the same to both the raw translations and the raw references, and sacreBLEU compares
the tokens as they are (tokenize none). Such a score is comparable with theirs only.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from sacrebleu.metrics import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer


def moses_tokens(lines: Sequence[str], lang: str) -> list[str]:
    """Return lower-cased, normalised lines of tokens with spaces between them, escaped as Moses does."""
    normalizer, tokenizer = MosesPunctNormalizer(lang), MosesTokenizer(lang)
    return [tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True) for line in lines]


def paper_bleu(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> float:
    """Return BLEU on the tokens of `moses_tokens`."""
    metric = BLEU(tokenize="none", force=True)
    return float(metric.corpus_score(moses_tokens(hypotheses, lang), [moses_tokens(references, lang)]).score)


def _lines(path: Path, parser: argparse.ArgumentParser) -> list[str]:
    if not path.is_file():
        parser.error(f"{path} is not a file")
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hypotheses", type=Path, nargs="+", help="translations, one a line, raw text")
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--lang", required=True, help="target language: de, fr, cs")
    arguments = parser.parse_args()
    references = _lines(arguments.reference, parser)
    scores = []
    for path in arguments.hypotheses:
        hypotheses = _lines(path, parser)
        if len(hypotheses) != len(references):
            parser.error(f"{path} has {len(hypotheses)} lines, {arguments.reference} has {len(references)}")
        metric = BLEU()
        default = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
        scores.append((default.score, paper_bleu(hypotheses, references, arguments.lang)))
        print(f"{path}: BLEU {default.score:.2f} (± {default._ci:.2f}), tokenised {scores[-1][1]:.2f}")
    print(metric.get_signature())
    if len(scores) > 1:
        for name, column in zip(("BLEU", "tokenised"), zip(*scores, strict=True), strict=True):
            print(f"{name}: mean {mean(column):.2f}, standard deviation {stdev(column):.2f} of {len(column)}")


if __name__ == "__main__":
    main()
