"""Translations that begin with a given prefix: tokens in both engines, and text that may end inside a word."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine_helpers import (
    PUSHABLE,
    Twins,
    both_find,
    ending_model,
    endless_model,
    printed_lines,
    push_all,
    run_cli,
    sentences,
    tokenizers,
    translation_settings,
    twins,
    whole_folder,
)
from mt.api.directions import Directions
from mt.api.loading import load
from mt.api.translation import BLOCK_LINES
from mt.bundle.to_ctranslate2 import convert
from mt.data.tokenizer import EOS_ID
from mt.decoding.engine import Sampling, SearchOptions, log_prob_batches
from mt.decoding.prefix import speller_of
from mt.decoding.scoring import forced_score
from mt.decoding.search import pad_sources
from mt.decoding.translator import Translator
from mt.errors import InputError
from mt.storage.run_dir import ModelDir

IDS = sentences([7, 2, 4, 5, 3, 6], 290)
OPTIONS = SearchOptions(beam_size=4, n_best=3, max_length=14)
LINES = ["A dog runs over the grass.", "Two men are talking.", "The old house."]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return twins(tmp_path_factory.mktemp("twins"), model=lambda config: ending_model(config, IDS, OPTIONS))


def translators(both: Twins, max_source_tokens: int = 40) -> list[Translator]:
    settings = translation_settings(max_source_tokens)
    return [Translator(engine, both.tokenizers, settings) for engine in (both.fast(), both.slow())]


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_both_engines_continue_a_prefix(both: Twins, beam: int) -> None:
    """Prefixes of translations that both know, so that an end is near, beside some that they would never write."""
    options = replace(OPTIONS, beam_size=beam, n_best=min(beam, 3))
    free = both.slow().translate(IDS, options)
    for number in range(6):
        prefixes = [hypotheses[0].ids[: (number + row) % 6] for row, hypotheses in enumerate(free)]
        prefixes[number] = IDS[0][:3]
        found = both_find(both, IDS, options, prefixes)
        for source, prefix, hypotheses in zip(IDS, prefixes, found, strict=True):
            for hypothesis in hypotheses:
                assert hypothesis.ids[: len(prefix)] == prefix
                src_tokens = pad_sources([source], torch.device("cpu"))
                [expected] = forced_score(both.model, src_tokens, [hypothesis.ids], len(prefix))
                assert hypothesis.log_prob == pytest.approx(expected, abs=1e-3)
        if beam == 1:  # a prefix of its own changes nothing
            own = [row for row in range(len(IDS)) if row != number]
            assert [found[row][0].ids for row in own] == [free[row][0].ids for row in own]


def test_a_prefix_as_long_as_a_translation_may_be(both: Twins) -> None:
    options = replace(OPTIONS, max_length=4)
    found = both_find(both, IDS, options, [IDS[0][:4]] * len(IDS))
    assert [h.ids for hypotheses in found for h in hypotheses] == [IDS[0][:4]] * len(IDS)


def test_samples_begin_with_the_prefix(both: Twins) -> None:
    options = replace(OPTIONS, n_best=8, sampling=Sampling())
    prefixes = [IDS[0][:3], [], IDS[0][:1]]
    found = both.slow().translate(IDS[:3], options, prefixes)
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert all(h.ids[: len(prefix)] == prefix for h in hypotheses)
        assert len({tuple(h.ids) for h in hypotheses}) > 1
    [_, without, _] = both.slow().translate(IDS[:3], options)
    assert found[1] == without


def test_log_probs_of_the_next_token(both: Twins) -> None:
    target = IDS[0][:3]
    others = [IDS[0], *IDS[:1] * 20], [[5], *IDS[2:3] * 20]  # in the same batch, and in another
    engines = both.fast(), both.slow()
    [(fast, *_), (slow, *_)] = (
        list(engine.next_log_probs([IDS[1], *others[0]], [target, *others[1]])) for engine in engines
    )
    assert fast.shape == slow.shape == (4, both.tokenizers.target.vocab_size)
    assert np.allclose(np.exp(fast), np.exp(slow), atol=1e-5)
    [expected] = forced_score(both.model, pad_sources([IDS[1]], torch.device("cpu")), [target])
    assert slow[range(4), [*target, EOS_ID]].sum() == pytest.approx(expected, abs=1e-4)


def test_log_probs_in_smaller_batches(both: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many sentences as the memory for their log-probabilities allows."""
    targets = [IDS[0][:3], [], [5]]
    for engine in (both.fast(), both.slow()):
        whole = list(engine.next_log_probs(IDS[:3], targets))
        monkeypatch.setattr("mt.decoding.engine._MAX_LOG_PROBS", 1)
        parts = list(engine.next_log_probs(IDS[:3], targets))
        monkeypatch.undo()
        assert [rows.shape for rows in parts] == [rows.shape for rows in whole]
        assert all(np.allclose(np.exp(one), np.exp(two), atol=1e-5) for one, two in zip(parts, whole, strict=True))
    batches = [list(log_prob_batches(256_000, [[5]] * 20, [[1] * size] * 20)) for size in (0, 31, 255, 10**6)]
    assert [len(first) for (first, _), *_ in batches] == [16, 16, 2, 1]
    assert all([pair for batch in each for pair in batch[0]] == [[5]] * 20 for each in batches)


@pytest.mark.parametrize("prefix", ["Ein Hu", "Ein Hund", "Ein Hund ", "ein ", "Z", "(", "Ωμ", "Das  a", "E", "Häus"])
def test_the_text_begins_with_the_prefix(both: Twins, prefix: str) -> None:
    begun = prefix.strip()
    texts = []
    for translator in translators(both):
        found = translator.translate(LINES, OPTIONS, prefixes=[prefix, "", prefix])
        assert [len(each) for each in found] == [3, 3, 3]
        for candidate in [*found[0], *found[2]]:
            assert candidate.text.startswith(begun)
            assert candidate.text == (candidate.prefix + candidate.completion).strip()
            if prefix[-1].isspace() and candidate.completion:
                assert candidate.prefix == f"{begun} "
        assert [c.text for c in found[1]] == [c.text for c in translator.translate(LINES, OPTIONS)[1]]
        texts.append([[c.text for c in each] for each in found])
    assert texts[0] == texts[1]


def test_the_last_word_is_spelt_as_the_model_would() -> None:
    """Of the spellings of `Das Ha`, the likeliest by brute force over all sequences of tokens with this beginning."""
    tokenizer = tokenizers(True).target
    speller = speller_of(tokenizer)
    prefix = speller.encode("Das Ha")
    assert tokenizer.tokens(prefix.ids[prefix.n_complete :])[0].startswith("▁")
    pieces = tokenizer.pieces
    rng = np.random.default_rng(1)
    for _ in range(20):
        rows = np.log(rng.dirichlet(np.full(len(pieces), 0.1), len(prefix.ids)))
        done = prefix.ids[: prefix.n_complete]
        rest = "".join(tokenizer.tokens(prefix.ids[len(done) :]))
        ways = {tuple(prefix.ids): sum(rows[len(done) + i, t] for i, t in enumerate(prefix.ids[len(done) :]))}
        for place, token in itertools.product(range(len(done), len(prefix.ids)), range(260, len(pieces))):
            spelt = "".join(tokenizer.tokens(prefix.ids[len(done) : place])) + pieces[token]
            if spelt.startswith(rest):
                cost = sum(rows[i, prefix.ids[i]] for i in range(len(done), place)) + rows[place, token]
                ways.setdefault((*prefix.ids[:place], token), cost)
        found = speller.likeliest(prefix, rows)
        assert tuple(found.forced) == max(ways, key=ways.__getitem__)


def test_a_word_that_has_only_begun_is_completed(both: Twins) -> None:
    """With a tokenizer that knows the word, its piece is forced, not those of its beginning."""
    tokenizer = both.tokenizers.target
    word = max((p for p in tokenizer.tokens(range(260, tokenizer.vocab_size)) if p.startswith("▁")), key=len)
    rows = np.full((9, tokenizer.vocab_size), -9.0)
    rows[:, tokenizer.encode(word[1:])[0]] = -0.1
    prefix = speller_of(tokenizer).encode(word[1:-1])
    assert speller_of(tokenizer).likeliest(prefix, rows).forced == tokenizer.encode(word[1:])
    found = speller_of(tokenizer).likeliest(prefix, rows)
    assert speller_of(tokenizer).decode(found, found.forced) == word[1:]


def test_refusals(both: Twins) -> None:
    [translator, _] = translators(both, max_source_tokens=12)
    with pytest.raises(InputError, match=r"the prefix of line 3 has \d+ tokens, and a translation may have 14"):
        translator.translate(["A dog."] * 2, OPTIONS, 2, ["", "Das alte Haus steht auf dem Hügel."])
    with pytest.raises(InputError, match="line 1 has a prefix, and is longer than the model takes"):
        translator.translate(["A dog runs over the grass. " * 9], OPTIONS, prefixes=["Ein"])
    assert translator.translate(["", " "], OPTIONS, prefixes=["Ein", "Ein"])[0][0].text == ""


def test_prefixes_of_a_file_are_checked_block_by_block(both: Twins) -> None:
    [translator, _] = translators(both)
    n_read = 0

    class Lines:  # as of a file: each iteration reads them again
        def __iter__(self) -> Iterator[str]:
            nonlocal n_read
            for _ in range(3000):
                n_read += 1
                yield "A dog."

    check = Directions(translator).check_prefixes
    check(translator, Lines(), ["Das"] * 3000, OPTIONS, 1, False)
    assert n_read == 3000
    with pytest.raises(InputError, match="the prefix of line 1500 has"):
        check(translator, Lines(), ["Das"] * 1499 + ["x" * 900] * 1501, OPTIONS, 1, False)
    assert n_read <= 3000 + 2000


def test_a_tokenizer_without_bytes(tmp_path: Path, both: Twins) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer

    (tmp_path / "text").write_text("ein Hund und ein Haus\n" * 9)
    options = {"vocab_size": 20, "minloglevel": 2, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), **options)
    speller = speller_of(SentencePieceTokenizer.from_files(tmp_path / "m.model"))
    with pytest.raises(InputError, match="has no 'Ω'"):
        speller.encode("ein Ω")
    prefix = speller.encode("ein  Hu")._replace(forced=speller.encode("ein Hu").ids)  # the model joins spaces
    assert speller.decode(prefix, speller.encode("ein Hund").ids) == "ein  Hund"


def test_retries_of_runaway_translations_keep_the_prefix(tmp_path: Path) -> None:
    endless = twins(tmp_path, *PUSHABLE, model=endless_model)
    options = replace(OPTIONS, beam_size=1, n_best=1, retry_loops=True, max_length=35, max_length_ratio=9.0)
    [fast, slow] = (each.translate(LINES, options, prefixes=["Das", "", "Haus"]) for each in translators(endless))
    assert [each[0].text for each in fast] == [each[0].text for each in slow]
    plain = translators(endless)[0].translate(LINES, replace(options, retry_loops=False), prefixes=["Das", "", "Haus"])
    assert any(again[0].text != first[0].text for again, first in zip(fast, plain, strict=True))
    for row, prefix in ((0, "Das"), (2, "Haus")):
        ids = endless.tokenizers.target.encode(prefix)
        assert list(fast[row][0].parts[0].target[: len(ids)]) == ids


@pytest.mark.parametrize("strength", [0.0, 0.1, 0.2])
def test_lines_without_a_prefix_may_be_empty_beside_others(tmp_path: Path, strength: float) -> None:
    """An end that is second likeliest counts as the first token, but not as the one behind a prefix."""
    pushed = twins(tmp_path, *PUSHABLE, model=endless_model)
    push_all(pushed.model, {EOS_ID: strength})
    convert(pushed.model, pushed.config, pushed.tokenizers, ModelDir(tmp_path / "again"))
    pushed = replace(pushed, folder=ModelDir(tmp_path / "again"))
    found = both_find(pushed, IDS, replace(OPTIONS, n_best=4), [IDS[0][:2], [], [], IDS[1], [], []])
    assert any(h.ids == [] for hypotheses in found for h in hypotheses)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_folder(tmp_path_factory.mktemp("model"), "decoding.max_length=20").root


def test_the_command(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "lines").write_text("\n".join([*LINES, ""]) + "\n")
    (tmp_path / "prefixes").write_text("Ein Hu\n\nDas \nNie\n")
    files = ("--input", tmp_path / "lines", "--prefix-file", tmp_path / "prefixes", "--format", "jsonl")
    for engine in ("ctranslate2", "torch"):
        rows = list(map(json.loads, printed_lines("translate", "--model", folder, "--engine", engine, *files)))
        assert [row.get("prefix") for row in rows] == ["Ein Hu", None, "Das ", None]
        assert [row["translation"] for row in rows[::2]] == [row["prefix"] + row["completion"] for row in rows[::2]]
        assert rows[0]["n_best"][0]["completion"] == rows[0]["completion"]
        assert [row["translation"] for row in rows[1::2]] == [printed_lines("translate", LINES[1], *few(folder))[0], ""]
    plain = printed_lines("translate", *LINES[:2], "--prefix", "Das", *few(folder))
    assert [line[:3] for line in plain] == ["Das", "Das"]


def few(folder: Path) -> list[str | Path]:
    return ["--model", folder]


def test_refused_options(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "lines").write_text("a\nb\n")
    (tmp_path / "prefixes").write_text("a\n")
    (tmp_path / "page.md").write_text("# A dog\n")
    given = ["--prefix-file", tmp_path / "prefixes"]
    for arguments, message in (
        ([*given, "--input", tmp_path / "lines"], "prefixes has 1 lines, and "),
        (["--prefix-file", "-", "--input", tmp_path / "lines"], "-: no such file"),
        ([*given, "a"], "--prefix-file belongs to --input FILE"),
        ([*given, "--input", tmp_path / "lines", "--prefix", "a"], "--prefix and --prefix-file contradict"),
        ([tmp_path / "page.md", "--output", tmp_path / "x.md", "--prefix", "a"], "--prefix is for lines of text"),
        (["a", "--prefix", "x" * 900], "the prefix of line 1 has"),
    ):
        with pytest.raises(InputError) as caught:
            run_cli("translate", *arguments, "--model", folder)
        assert message in str(caught.value)


def test_python(folder: Path) -> None:
    model = load(folder)
    assert model.translate("A dog.", prefix="Ein Hu").startswith("Ein Hu")
    found = model.translate(LINES, prefix=["Ein", "", "Das "], details=True)
    assert [each.text for each in found[::2]] == ["Ein" + found[0].completion, "Das " + found[2].completion]
    assert found[1].completion == found[1].text
    broken, plain = (model.translate("A dog.", prefix=f"Das{space}a", details=True) for space in ("\r\n", " "))
    assert (broken.n_best, broken.tokens) == (plain.n_best, plain.tokens)
    with pytest.raises(InputError, match="line 2 has no prefix"):
        model.translate(LINES, prefix=["Ein"])
    for lines, prefixes in ((LINES, ["Ein"] * 4), (iter(LINES), iter(["Ein"] * 4))):
        with pytest.raises(InputError, match="there is a prefix for line 4, but no such line"):
            model.translate(lines, prefix=prefixes)


def test_no_ngram_twice(folder: Path) -> None:
    """The random model writes loops; the option ends them as `decoding.no_repeat_ngram_size` does."""
    model = load(folder)
    assert len(set(model.translate(LINES[1], details=True, beam_size=1).tokens)) < 20
    tokens = model.translate(LINES[1], details=True, beam_size=1, no_repeat_ngram_size=1).tokens
    assert len(set(tokens)) == len(tokens)
    [line] = printed_lines("translate", LINES[1], "--greedy", "--no-repeat-ngram-size", "1", *few(folder))
    assert line == model.translate(LINES[1], beam_size=1, no_repeat_ngram_size=1)


def test_a_prefix_is_refused_before_anything_is_translated(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, prefixes = ["A dog."] * (BLOCK_LINES + 2), [""] * BLOCK_LINES
    said = rf"the prefix of line {BLOCK_LINES + 2} has \d+ tokens, and a translation may have 20"
    with pytest.raises(InputError, match=said):
        next(load(folder).results(lines, prefix=[*prefixes, "Ein", "x" * 900]))
    (tmp_path / "lines").write_text("\n".join(lines))
    (tmp_path / "prefixes").write_text("\n".join([*prefixes, "Ein", "x" * 900]))
    with pytest.raises(InputError, match=said):
        run_cli("translate", "--input", tmp_path / "lines", "--prefix-file", tmp_path / "prefixes", *few(folder))
    assert capsys.readouterr().out == ""
