"""The translator and the torch engine: long lines in parts, one line per line, batches within their budget."""

import contextlib
import re
import resource
import time
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_helpers import same, sentences, translation_settings
from model_helpers import lively_model, reciting_model, small_model
from mt.api.directions import Directions
from mt.data.glossary import Glossary
from mt.data.tokenizer import BYTES, SPACE, SPECIALS, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.candidates import Candidate, Part
from mt.decoding.engine import Sampling, SearchOptions
from mt.decoding.long_input import split_long
from mt.decoding.torch_engine import TorchEngine
from mt.decoding.translator import Translator
from mt.errors import InputError, MachineError
from mt.model.packing import Packing
from mt.model.transformer import Transformer

TEXT = """A dog runs over the green grass. Two men are talking; a woman laughs, and the children play.
The old house is on the hill. A boy in a red shirt jumps into the water!
Is the girl with the yellow hat reading a book? People walk along the street, slowly.
你好。世界很大。我们再见。"""
TOKENIZER = BpeTokenizer.train([line for line in TEXT.splitlines() for _ in range(3)], 420)
PAIR = TokenizerPair(TOKENIZER, TOKENIZER)
GREEDY = SearchOptions(beam_size=1, max_length=8)


def count_tokens(text: str) -> int:
    return len(TOKENIZER.encode(text))


def words(text: str) -> int:
    return len(text.split())


def make(
    model: Transformer, max_source_tokens: int = 64, target_lang: str = "de", batch_tokens: int = 500
) -> Translator:
    return Translator(TorchEngine(model, batch_tokens), PAIR, translation_settings(max_source_tokens, target_lang))


def glossary_of(folder: Path, rows: str) -> Glossary:
    (folder / "terms.tsv").write_text(rows, encoding="utf-8")
    return Glossary(folder / "terms.tsv")


def random_model(**changes: object) -> Transformer:
    return lively_model(vocab=TOKENIZER.vocab_size, max_length=200, **changes)


MODEL = random_model()


def source_batches(model: Transformer) -> list[torch.Tensor]:
    """Return a list to which each call of the encoder appends its tokens (B, S)."""
    batches: list[torch.Tensor] = []
    encode = model.encode

    def record(src_tokens: torch.Tensor, src: Packing) -> torch.Tensor:
        batches.append(src_tokens)
        return encode(src_tokens, src)

    model.encode = record
    return batches


# Splitting -----------------------------------------------------------------------------------------------------------


TWO_SENTENCES = "One two three. Four five six. Seven eight."
SPLITS = [
    (words, 3, "One.  Two,\tthree. ", ["One.  Two,\tthree. "]),  # it fits
    (words, 6, TWO_SENTENCES, ["One two three. Four five six.", "Seven eight."]),
    (words, 5, TWO_SENTENCES, ["One two three.", "Four five six. Seven eight."]),
    (words, 4, "A b, c dd. E f, g hh.", ["A b, c dd.", "E f, g hh."]),
    (words, 2, "Really? Yes! No! Well then.", ["Really? Yes!", "No!", "Well then."]),
    (words, 4, "a b c, d e f g", ["a b c,", "d e f g"]),
    (words, 4, "a b; c: d e f g", ["a b; c:", "d e f g"]),
    (words, 3, "a b c d e f g", ["a b c", "d e f", "g"]),
    (words, 5, "यह एक वाक्य है। यह दूसरा वाक्य है।", ["यह एक वाक्य है।", "यह दूसरा वाक्य है।"]),
    (words, 5, "کیا یہ ایک جملہ ہے؟ یہ دوسرا جملہ ہے۔", ["کیا یہ ایک جملہ ہے؟", "یہ دوسرا جملہ ہے۔"]),
    (words, 5, "„Komm schnell zu mir!“ Dann ging er weg.", ["„Komm schnell zu mir!“", "Dann ging er weg."]),
    (words, 5, "أكل الولد التفاحة الحمراء، ثم نام قليلا", ["أكل الولد التفاحة الحمراء،", "ثم نام قليلا"]),
    (len, 6, "「走吧。」真的吗？好的。", ["「走吧。」", "真的吗？", "好的。"]),
    (len, 8, "你好。世界很大。我们再见。", ["你好。世界很大。", "我们再见。"]),
    # A sentence that is cut leaves its neighbours whole.
    (
        words,
        5,
        "Short one. a b c d e f, g hh. Another short one.",
        ["Short one.", "a b c d e", "f,", "g hh.", "Another short one."],
    ),
    (len, 4, "abcdefghij", ["ab", "cde", "fg", "hij"]),
    # Numbers are no ends of sentences.
    (words, 4, "Version 3.14 of it costs 2,50 euro now", ["Version 3.14 of it", "costs 2,50 euro now"]),
]


@pytest.mark.parametrize(("count", "limit", "text", "expected"), SPLITS)
def test_text_is_split_at_the_best_boundaries(
    count: Callable[[str], int], limit: int, text: str, expected: list[str]
) -> None:
    assert split_long(text, count, limit) == expected


ANY_TEXT = st.text(
    st.sampled_from("ab c.d!? ,;: \t e。！，你好ﬀ😀\u0301\u3000\u00a0\U0001d160\ufb2c▁\ue000"), max_size=80
)


@settings(max_examples=400, deadline=None)
@given(ANY_TEXT, st.integers(1, 40), st.sampled_from([len, words, count_tokens]))
def test_parts_lose_nothing_and_keep_within_the_limit(text: str, limit: int, count: Callable[[str], int]) -> None:
    limit = max(limit, 16 if count is count_tokens else 1)  # a character of three, of twelve bytes
    parts = split_long(text, count, limit)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(count(part) <= limit for part in parts)
    if text and text == text.strip():  # as in the translator
        assert all(part.strip() for part in parts), "the model would translate an empty part"


# The limit may be smaller than the tokens of one character, since data.max_length may be 3.
@pytest.mark.parametrize("line", ["😀", "a😀 b", "x" * 30])
def test_a_limit_below_one_character_ends_too(line: str) -> None:
    translator = make(MODEL, max_source_tokens=4)
    with contextlib.suppress(InputError):
        assert len(translator.best([line], GREEDY)) == 1


# Lines in, lines out ------------------------------------------------------------------------------------------------


def test_empty_and_white_lines_give_empty_lines() -> None:
    lines, translator = ["", "A dog runs.", "   ", "\t\r\n", "\u3000", "Two men."], make(MODEL)
    assert [text == "" for text in translator.best(lines, GREEDY)] == [True, False, True, True, True, False]
    assert translator.best(["", " "], GREEDY) == ["", ""]
    assert translator.best([], GREEDY) == []
    [candidates] = translator.translate([""], SearchOptions(beam_size=4, n_best=3))
    assert [c.text for c in candidates] == [""]


def test_a_line_without_letters_and_digits_stays(tmp_path: Path) -> None:
    lines, translator = ["-----", " ***  | ", "€", "…?!", "♥️", "- 1", "dog"], make(MODEL)
    kept = [line.strip() for line in lines]
    found = translator.best(lines, GREEDY)
    assert [text == line for text, line in zip(found, kept, strict=True)] == [True] * 5 + [False] * 2
    assert translator.translate(["-"], GREEDY, prefixes=["Ein"])[0][0].text.startswith("Ein")
    assert translator.translate(["-"], GREEDY, prefixes=[" "])[0][0].text == "-"
    with_term = replace(translator, source_lang="en", glossary=glossary_of(tmp_path, "€\tEuro\n"))
    assert "Euro" in with_term.best(["€"], replace(GREEDY, max_length=30))[0]


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("Two\u00a0men.", "Two men."),
        ("Two\tmen.\u2028A  dog\u3000\u00a0runs.", "Two men. A dog runs."),
        ("\ufeffTwo \u200bmen; a wo\u00adman.", "Two men; a woman."),
    ],
)
def test_unusual_white_space_changes_nothing(tmp_path: Path, line: str, plain: str) -> None:
    translator = make(MODEL)
    assert translator.best([line], GREEDY) == translator.best([plain], GREEDY)
    terms = replace(translator, source_lang="en", glossary=glossary_of(tmp_path, "two men\tLeute\n"))
    assert terms.term_share([line], ["Leute"]) == 100
    [candidate] = translator.translate([line], replace(GREEDY, attention=True))[0]
    [same] = translator.translate([plain], replace(GREEDY, attention=True))[0]
    spans = [
        [(unit.start, [text[word:][:2] for word, _ in unit.shares]) for unit in translator.align(text, found)]
        for text, found in ((line, candidate), (plain, same))
    ]
    assert [start for start, _ in spans[0]] == [start for start, _ in spans[1]]
    assert [words for _, words in spans[0]] == [words for _, words in spans[1]]


@pytest.mark.parametrize("source_lang", ["th", "en,th"])
def test_languages_without_spaces_keep_white_space(source_lang: str) -> None:
    line, model = "Two\u200bmen.\u3000A  dog.", random_model()
    batches, settings = source_batches(model), translation_settings(64, source_lang=source_lang)
    translator = Translator(TorchEngine(model, 500), PAIR, settings)
    translator.best([line], GREEDY)
    assert batches[0].tolist()[0][1:-1] == TOKENIZER.encode(line)


def test_lines_keep_their_order_though_batches_are_by_length() -> None:
    lines = [part.strip() for part in re.split(r"(?<=[.!?;,。])", TEXT) if part.strip()] + ["", "a", "dog " * 9]
    translator = make(MODEL, batch_tokens=60)
    together = translator.best(lines, GREEDY)
    assert together == [translator.best([line], GREEDY)[0] for line in lines]
    assert len(set(together)) > len(lines) / 2, "no variety: a wrong order could pass"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=6))
def test_every_line_gives_one_line(lines: list[str]) -> None:
    out = make(MODEL, max_source_tokens=20).best(lines, GREEDY)
    assert len(out) == len(lines)
    assert not any("\n" in text or "\r" in text for text in out)
    assert all(text == "" for line, text in zip(lines, out, strict=True) if not line.strip())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_break_in_the_input_becomes_a_space(end: str) -> None:
    model = random_model()
    batches, translator = source_batches(model), make(model)
    assert translator.best([f"Two men.{end}A dog."], GREEDY) == translator.best(["Two men. A dog."], GREEDY)
    assert batches[0].tolist() == batches[1].tolist()


@pytest.mark.parametrize("spelt", ["ab\ncd", "ab\rcd", "ab\r\ncd", "\nab\n\ncd\n"])
def test_a_line_break_in_the_output_becomes_a_space(spelt: str) -> None:
    ids = [len(SPECIALS) + value for value in spelt.encode()]
    assert TOKENIZER.tokens(ids[:1]) == [BYTES[ord(spelt[0])]]
    [text, second] = make(reciting_model(ids, TOKENIZER.vocab_size)).best(
        ["A dog.", "Two men."], replace(GREEDY, max_length=20)
    )
    assert text == second
    assert not {"\n", "\r"} & set(text)
    assert text.split() == ["ab", "cd"]


def test_bytes_that_are_no_character_are_left_out() -> None:
    broken = [len(SPECIALS) + value for value in "\N{SNOWMAN}".encode()[:2]]
    space = TOKENIZER.pieces.index(SPACE)
    ids = [*TOKENIZER.encode("The old house"), space, *broken, *TOKENIZER.encode("is")]
    translator, options = make(reciting_model(ids, TOKENIZER.vocab_size)), replace(GREEDY, max_length=20)
    assert translator.best(["A dog."], options) == ["The old house is"]
    [[prefixed]] = translator.translate(["A dog."], options, prefixes=["The old"])
    assert prefixed.text == "The old house is"


def test_the_output_is_what_the_tokens_spell() -> None:
    model = reciting_model(TOKENIZER.encode("The old house is on the hill."), TOKENIZER.vocab_size)
    for beam_size in (1, 3):
        options = SearchOptions(beam_size=beam_size, max_length=30)
        assert make(model).best(["A dog."], options) == ["The old house is on the hill."]


def test_the_model_sees_start_tokens_and_end() -> None:
    model = random_model()
    batches = source_batches(model)
    make(model).best([" A dog runs. ", "Two"], GREEDY)
    long, short = ([2, *TOKENIZER.encode(text), 3] for text in ("A dog runs.", "Two"))
    assert [batch.tolist() for batch in batches] == [[long, short + [0] * (len(long) - len(short))]]


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=3.0)])
def test_a_repeated_line_is_searched_once_for_each_prefix(sampling: Sampling | None) -> None:
    model, options = random_model(), replace(GREEDY, sampling=sampling)
    batches, translator = source_batches(model), make(model)
    lines, prefixes = ["A dog runs.", "Two", "A dog runs.", "A dog runs."], ["", "", "a", ""]

    def translated(rows: Sequence[int]) -> list[str]:
        results = translator.translate([lines[i] for i in rows], options, prefixes=[prefixes[i] for i in rows])
        return [candidates[0].text for candidates in results]

    together = translated(range(4))
    assert sum(map(len, batches)) == 4, "three searches, and one step for the tokens of the prefix"
    assert together == [translated([i])[0] for i in range(4)]
    assert together[2] not in together[:2]


# Long lines ---------------------------------------------------------------------------------------------------------

LONG = "A dog runs over the green grass. The old house is on the hill. Two men are talking; a woman laughs."
LIMIT = 14


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    ("lang", "joint"), [("de", " "), ("zh", ""), ("ja", ""), ("zh-CN", ""), ("zh_Hans", ""), ("ko", " ")]
)
def test_a_long_line_is_the_sum_of_its_parts(lang: str, joint: str, beam_size: int) -> None:
    translator = make(MODEL, LIMIT, lang)
    options = SearchOptions(beam_size=beam_size, n_best=min(3, beam_size), max_length=6)
    parts = split_long(LONG, count_tokens, LIMIT - 2)
    assert len(parts) > 2
    [joined] = translator.translate([LONG], options)
    alone = translator.translate(parts, options)
    scores = [candidate.score for candidate in joined]
    assert scores == sorted(set(scores), reverse=True)
    assert len(joined) == options.n_best
    for rank, candidate in enumerate(joined):
        assert candidate.text == joint.join(candidates[rank].text.strip() for candidates in alone)
        assert candidate.score == pytest.approx(sum(candidates[rank].score for candidates in alone), abs=1e-4)
        assert candidate.log_prob == pytest.approx(sum(candidates[rank].log_prob for candidates in alone), abs=1e-4)


def test_a_line_in_parts_is_warned_of(notices: list[str]) -> None:
    make(MODEL, max_source_tokens=LIMIT).translate(["Two men.", LONG, "A dog."], GREEDY)
    count = len(split_long(LONG, count_tokens, LIMIT - 2))
    assert notices == [f"line 2 is longer than the model's limit; translated in {count} parts"]


def test_lines_of_a_detected_language_keep_their_numbers(notices: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = translation_settings(LIMIT, source_lang="en,fr")
    directions = Directions(Translator(TorchEngine(MODEL, 500), PAIR, settings))
    monkeypatch.setattr(directions, "source_of", lambda text, _: "en" if text == LONG else "fr")
    lines = ["Two men.", LONG, "A dog."]
    into = directions.into("de", "en")
    directions.translate_detected(lines, into, GREEDY, 11, ["", "", ""])
    assert [notice.split(";")[0] for notice in notices] == ["line 12 is longer than the model's limit"]
    with pytest.raises(InputError, match="line 12 has a prefix"):
        directions.translate_detected(lines, into, GREEDY, 11, ["", "Ein", ""])


def test_prefixes_may_be_an_array() -> None:
    lines, prefixes = np.array(["Two men.", "A dog."]), np.array(["A boy", ""])
    translator = make(MODEL)
    Directions(translator).check_prefixes(translator, lines, prefixes, GREEDY, 1, False)
    with pytest.raises(InputError, match="half of a surrogate pair"):
        Directions(translator).check_prefixes(translator, lines, np.array(["A boy", "\udfff"]), GREEDY, 1, False)


def test_a_line_that_just_fits_is_not_split(notices: list[str]) -> None:
    for room, warnings in ((2, 0), (1, 1)):
        make(MODEL, max_source_tokens=count_tokens(LONG) + room).translate([LONG], GREEDY)
        assert len(notices) == warnings


def test_long_lines_of_a_text_give_one_warning(notices: list[str]) -> None:
    translator = make(MODEL, max_source_tokens=LIMIT)
    translator.best(["Two men.", LONG, "A dog.", LONG], GREEDY)
    assert not notices
    translator.warn_long_lines(["Two men.", LONG, "A dog.", LONG], "test set")
    translator.warn_long_lines(["Two men.", "\u200b" * 100 + "A dog."], "test set")  # translated without these spaces
    told = "test set: 2 of 4 lines are longer than the model's limit (line 2 is the first); translated in parts"
    assert notices == [told]


@pytest.mark.parametrize(
    "line",
    [
        LONG,
        "你好。" * 30,
        "😀" * 30 + "x",
        "x" * 100,
        # One character that becomes three, of twelve bytes, in normal form C.
        "\U0001d160" * 15 + "x",
        "\ufb2c" * 15,
        "▁\ue000" * 20 + "x",
        "e\u0301 " * 40,
    ],
    ids=["text", "chinese", "emoji", "word", "music", "hebrew", "escapes", "accents"],
)
def test_the_model_never_gets_more_than_it_takes(line: str) -> None:
    limit = 64
    model = lively_model(vocab=TOKENIZER.vocab_size, max_length=limit)  # learned positions: one more token would fail
    batches = source_batches(model)
    [text] = make(model, max_source_tokens=limit).best([line], GREEDY)
    assert batches
    assert max(src_tokens.shape[1] for src_tokens in batches) <= limit
    assert "\n" not in text
    assert unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("source_lang", ["en", "zh"])  # the Chinese line is split where the spaces are
def test_an_endless_run_of_spaces_is_quick(source_lang: str) -> None:
    line = "Two men." + " " * 3_000_000 + "Two men."
    model, settings = lively_model(vocab=TOKENIZER.vocab_size), translation_settings(64, source_lang=source_lang)
    translator = Translator(TorchEngine(model, 500), PAIR, settings)
    started = time.process_time()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    [text] = translator.best([line], GREEDY)
    assert time.process_time() - started < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100_000  # KiB
    parts = ["Two men."] * 2 if source_lang == "zh" else ["Two men. Two men."]
    assert text == " ".join(translator.best(parts, GREEDY))


# Alignment ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_line_is_aligned_in_any_normal_form(form: str) -> None:
    text = "Ein Hund läuft über das Gras"
    tokenizer = BpeTokenizer.train([text] * 20, 330)
    source, target = tokenizer.encode(text), tokenizer.encode(text)
    backwards = [[float(i + j == len(source) - 1) for i in range(len(source))] for j in range(len(target))]
    translator = Translator(TorchEngine(MODEL, 100), TokenizerPair(tokenizer, tokenizer), translation_settings(64))
    line = unicodedata.normalize(form, f" {text}")
    units = translator.align(line, Candidate(text, 0.0, 0.0, parts=(Part(source, target, backwards),)))
    origins = [unicodedata.normalize("NFC", line[unit.origin :]).split()[0] for unit in units]
    assert origins == list(reversed(text.split()))


def test_a_line_whose_normal_form_has_other_words_is_aligned_by_place() -> None:
    line = unicodedata.normalize("NFD", "が は")  # the accent is a word of its own here
    [first, second] = make(MODEL).align(line, Candidate("A dog", 0.0, 0.0, parts=(Part([4], [5], None),)))
    assert (first.origin, second.origin) == (0, 1)


# The engine ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 25, 60, 100])
def test_batches_keep_within_their_budget(budget: int) -> None:
    lengths = [(7 * row) % 20 + 1 for row in range(30)]
    model = small_model(max_length=40)
    batches = source_batches(model)
    results = TorchEngine(model, budget).translate(sentences(lengths, 12), SearchOptions(1, max_length=2))
    shapes = [tuple(src_tokens.shape) for src_tokens in batches]
    assert len(results) == len(lengths) == sum(rows for rows, _ in shapes)
    assert all(rows * length <= budget or rows == 1 for rows, length in shapes)
    # Full: no batch had room for the longest sentence of the next.
    assert all((rows + 1) * length > budget for rows, length in shapes[:-1])


def test_memory_that_runs_out_is_reported_when_no_batch_can_be_split() -> None:
    model = lively_model()
    batches, encode = [], model.encode

    def limited(src_tokens: torch.Tensor, src: Packing) -> torch.Tensor:
        batches.append(len(src_tokens))
        if len(src_tokens) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(src_tokens, src)

    model.encode = limited
    engine, ids = TorchEngine(model, 1000), sentences([5, 5], 12)
    most = 1
    assert len(engine.translate(ids, GREEDY)) == 2
    assert batches == [2, 1, 1]
    most = 0
    for use in (engine.translate, lambda ids, _: list(engine.next_log_probs(ids, ids))):
        with pytest.raises(MachineError, match="out of memory"):
            use(ids[:1], GREEDY)


def test_the_engine_works_without_dropout_and_restores_training() -> None:
    model = lively_model(dropout=0.5, attention_dropout=0.5)
    engine, ids = TorchEngine(model, 100), sentences([4, 6], 12)
    expected = engine.translate(ids, GREEDY)
    assert not model.training
    model.train()
    assert engine.translate(ids, GREEDY) == expected
    assert all(module.training for module in model.modules())
    with pytest.raises(IndexError):
        engine.translate([[4, 99_999]], GREEDY)
    assert model.training


def test_an_empty_sentence_between_others() -> None:
    engine = TorchEngine(lively_model(), 100)
    assert [len(hypotheses) for hypotheses in engine.translate([[4, 5], [], [6]], GREEDY)] == [1, 1, 1]
    assert engine.translate([], GREEDY) == []


@pytest.mark.parametrize("beam_size", [1, 3])
def test_threads_side_by_side_change_nothing_and_leave_torch_as_it_was(beam_size: int) -> None:
    many = sentences([1 + (5 * row) % 23 for row in range(30)], TOKENIZER.vocab_size, seed=3)
    options, before = SearchOptions(beam_size, max_length=30), torch.get_num_threads()
    engine = TorchEngine(MODEL, 4096)
    alone = [engine.translate([ids], options)[0] for ids in many]
    try:
        torch.set_num_threads(3)
        together = engine.translate(many, options)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    same(together, alone)


def test_torch_engines_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of a server may call two engines at once, and both set torch's number of threads."""
    running, most = [0], [0]

    def slow(*_: object) -> list[Any]:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.05)
        running[0] -= 1
        return []

    monkeypatch.setattr(TorchEngine, "_translate", slow)
    engines = [TorchEngine(SimpleNamespace(device=torch.device("cpu")), 100) for _ in range(2)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda engine: engine.translate([], SearchOptions()), engines * 2))
    assert most == [1]
