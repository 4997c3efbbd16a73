"""Scores of many lines at once are those of py3langid."""

import numpy as np
import pytest

from mt.data.phrasebook import sentence_pairs
from mt.extras.doctor.line_languages import MAX_BYTES, LineScorer
from mt.text.language_id import Detector


@pytest.fixture(scope="module")
def scorer() -> LineScorer:
    return LineScorer(Detector(()))


def test_the_languages_are_those_of_py3langid(scorer: LineScorer) -> None:
    library = Detector(()).library
    lines = [text for pair in list(sentence_pairs("train"))[:150] for text in pair if len(text) < MAX_BYTES]
    lines += ["Шляпа лежит здесь.", "帽子在这里吗？", "SIE MÖCHTE WISSEN, WO DER BAHNHOF IST.", "Die Tür ist zu."]
    best = scorer.score(lines, scorer.table).argmax(axis=1)
    agreed = [scorer.languages[column] == library.classify(line)[0] for line, column in zip(lines, best, strict=True)]
    assert np.mean(agreed) > 0.95
    assert all(agreed[-4:])


def test_lines_do_not_depend_on_each_other(scorer: LineScorer) -> None:
    lines = ["Una frase.", "", "x" * 10_000, "\ud800", "12", "é" * 100, "Two words"]
    together = scorer.score(lines, scorer.table)
    assert np.array_equal(together, np.concatenate([scorer.score([line], scorer.table) for line in lines]))
    assert not together[1].any()
    assert scorer.score([], scorer.table).shape == (0, len(scorer.languages))


def test_ngrams_are_counted(scorer: LineScorer) -> None:
    lines = ["Two words", "", "Two"]
    counts = scorer.count(lines)
    assert counts.shape == (len(scorer.table) - 1,)
    sums = scorer.score(lines, scorer.table) / np.log(2) * np.sqrt([[len(line.encode()) or 1] for line in lines])
    assert np.allclose(counts @ scorer.table[:-1], sums.sum(axis=0), rtol=1e-3)
    assert not scorer.count([]).any()
