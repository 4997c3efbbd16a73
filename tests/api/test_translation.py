"""Translation from Python: strings, details, threads, and what is refused."""

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mt
from command import mt as command
from mt.api.loading import glossary_of
from mt.api.translation import Translator

LINES = ["a b c", "", "d e", "j i h g", "a b c"]


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return mt.load(trained / "runs" / "tiny")


@pytest.fixture(scope="module")
def on_torch(trained: Path) -> Translator:
    return mt.load(trained / "runs" / "tiny", engine="torch")


def test_a_stream_holds_few_long_lines(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.text.lines._MAX_BLOCK", 1000)
    lines = iter(["a " * 200] * 9)
    next(translator.stream(lines))
    assert len(list(lines)) == 9 - 3


def test_strings_are_those_of_the_command_line(translator: Translator, trained: Path) -> None:
    printed = command("translate", cwd=trained, stdin="\n".join(LINES).encode()).stdout
    translated = translator.translate(LINES)
    assert translated == printed.splitlines()
    assert translated[1] == ""
    assert translator.translate("a b c") == translated[0]
    assert list(translator.stream(iter(LINES))) == translated
    assert list(translator.stream("a b c")) == [
        translator.translate("a b c", beam_size=np.int64(2))
    ]  # the model's beam
    assert translator.translate([]) == []


def test_several_translations_of_each_text(two_languages: Path) -> None:
    into_xx = partial(mt.load(two_languages / "runs" / "two").translate, to="xx", beam_size=4)
    one, two = into_xx("a b c", n_best=2)
    assert (one, one != two) == ("k l m", True)
    assert into_xx(["a b c", "d e"], n_best=2)[0] == [one, two]
    assert into_xx("a b c", n_best=1) == [one]


def test_details(two_languages: Path) -> None:
    found = mt.load(two_languages / "runs" / "two").translate("a b c", to="xx", details=True, n_best=2)
    assert (found.source, found.text) == ("a b c", "k l m")
    assert found.score == found.n_best[0].score > found.n_best[1].score
    assert "".join(found.source_tokens).replace("▁", " ").split() == ["<2xx>", "a", "b", "c"]
    assert "".join(found.tokens).replace("▁", " ").strip() == found.text
    assert found.alignment is None
    on_torch = mt.load(two_languages / "runs" / "two", engine="torch")
    [aligned] = on_torch.translate(["a b c"], to="xx", details=True, attention=True)
    assert aligned.alignment
    assert all(0 <= source < 3 and 0 <= target < 3 for source, target in aligned.alignment)


def test_search_arguments_change_the_search(on_torch: Translator) -> None:
    drawn = [on_torch.translate("a b c", sample=True, seed=seed) for seed in (1, 2, 3, 4, 5, 6)]
    assert len(set(drawn)) > 1
    assert drawn[0] == on_torch.translate("a b c", sample=True, seed=1)
    beam = on_torch.translate("a b c", details=True, beam_size=8)
    greedy = on_torch.translate("a b c", details=True, beam_size=1)
    assert beam.score >= greedy.score


def test_a_language_is_chosen(two_languages: Path) -> None:
    translator = mt.load(two_languages / "runs" / "two")
    assert translator.target_langs == ("xx", "yy")
    assert (translator.translate("a b", to="xx"), translator.translate("a b", to="yy")) == ("k l", "q r")
    with pytest.raises(mt.InputError, match="xx, yy"):
        translator.translate("a b")


def test_given_translations_are_scored(on_torch: Translator, translator: Translator) -> None:
    likely, unlikely, empty = on_torch.score([("a b", "q p"), ("a b", "q p q p q p"), ("", "x")])
    assert unlikely.log_prob < likely.log_prob < 0
    assert unlikely.tokens > likely.tokens
    assert empty is None
    broken, whole = on_torch.score([("a\nb", "q\r\np"), ("a b", "q p")])
    assert (broken.log_prob, broken.tokens) == (pytest.approx(whole.log_prob), whole.tokens)
    with pytest.raises(mt.InputError, match="torch"):
        next(translator.score([("a", "b")]))


def test_a_document_reports_its_progress(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("".join(f"# {letter} b\n\n" for letter in "abcdefghij" * 60))
    calls: list[tuple[int, int]] = []
    translator.translate_document(tmp_path / "a.md", tmp_path / "b.md", progress=lambda *call: calls.append(call))
    assert calls[-1] == (10, 10)


def test_sentences_of_a_document_have_no_line_numbers(
    translator: Translator, tmp_path: Path, notices: list[str]
) -> None:
    (tmp_path / "a.md").write_text(f"# {'a b ' * 60}\n")
    translator.translate_document(tmp_path / "a.md", tmp_path / "b.md")
    assert not [notice for notice in notices if notice.startswith("line ")]


@pytest.mark.parametrize("name", ["a.html", "a.md"])
def test_samples_of_a_document_are_refused_as_those_of_lines_are(
    translator: Translator, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("<p>a <b>b</b> c</p>\n")
    calls: list[tuple[int, int]] = []
    with pytest.raises(mt.InputError, match="does not draw reproducible samples"):
        translator.translate_document(
            tmp_path / name, tmp_path / f"out-{name}", sample=True, progress=lambda *call: calls.append(call)
        )
    assert not calls
    assert not (tmp_path / f"out-{name}").exists()


def test_threads_get_their_own_translations(translator: Translator, on_torch: Translator) -> None:
    alone = translator.translate(LINES * 5)
    attention = on_torch.translate("a b c", details=True, attention=True).alignment
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(translator.translate, LINES * 5)) == alone
        aligned = pool.map(lambda line: on_torch.translate(line, details=True, attention=True), ["a b c"] * 6)
        assert [each.alignment for each in aligned] == [attention] * 6
        # Attention is read by hooks, which other threads run through, too.
        pairs, done = [("a", "q"), ("a b c d", "q p q")], threading.Event()
        alone = list(on_torch.score(pairs))

        def score() -> bool:
            return all(list(on_torch.score(pairs)) == alone for _ in iter(done.is_set, True))

        scoring = [pool.submit(score) for _ in range(3)]
        try:
            found = [on_torch.translate("a b c", details=True, attention=True) for _ in range(60)]
        finally:
            done.set()
        assert [each.alignment for each in found] == [attention] * 60
        assert all(each.result() for each in scoring)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_forked_process_needs_a_model_of_its_own(translator: Translator) -> None:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def translate() -> None:
        try:
            translator.translate("a b")
        except mt.InputError as error:
            sender.send(error)

    process = context.Process(target=translate)
    process.start()
    try:
        assert receiver.poll(60)
        assert receiver.recv().hint == "load it in each process"
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_size": 0}, "beam_size 0 is not between 1 and 1000"),
        ({"beam_size": "5"}, "beam_size: '5' is not a whole number"),
        ({"beam_size": True}, "beam_size: True is not a whole number"),
        ({"length_penalty": float("nan")}, "length_penalty nan is not between"),
        ({"n_best": 0}, "n_best 0 is not between"),
        ({"n_best": 9, "beam_size": 2}, "n_best 9 is more than the beam of 2 can hold"),
        ({"temperature": 0.5}, "temperature belongs to sample"),
        ({"beam_size": 2, "sample": True}, "beam_size and sample contradict each other"),
        ({"sample": True}, "does not draw reproducible samples"),
        ({"mbr": 4, "utility": "ter"}, "utility: 'ter' is not one of chrf, bleu"),
        ({"beam": 2}, "beam is no argument of a search"),
        ({"sample": "no"}, "sample: 'no' is neither True nor False"),
        ({"details": "yes"}, "details: 'yes' is neither True nor False"),
        ({"attention": True, "details": True}, "attention takes a single model on torch"),
        ({"to": "de"}, "de"),
    ],
    ids=str,
)
def test_wrong_arguments(translator: Translator, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(mt.InputError, match=message):
        translator.translate("a b", **arguments)  # type: ignore[call-overload]


def test_wrong_texts_and_models(translator: Translator, on_torch: Translator, tmp_path: Path) -> None:
    with pytest.raises(mt.InputError, match="3 is not a string"):
        translator.translate(["a", 3])  # type: ignore[list-item]
    with pytest.raises(mt.InputError, match="None is not a string"):
        translator.translate(None)  # type: ignore[call-overload]
    with pytest.raises(mt.InputError, match="None is not a string"):
        list(on_torch.score([("a", None)]))  # type: ignore[list-item]
    for wrong in ({"text": "a \ud800"}, {"text": "a", "prefix": "\udfff"}):
        with pytest.raises(mt.InputError, match=r"\\ud.* has half of a surrogate pair"):
            translator.translate(**wrong)  # type: ignore[call-overload]
    for given in ({"model": 3}, {"model": [3]}, {"keep": 3}, {"keep": ["a", 3]}):
        with pytest.raises(mt.InputError, match="3 is not a string"):
            mt.load(**given)  # type: ignore[arg-type]
    with pytest.raises(mt.InputError) as error:
        mt.load(tmp_path / "none")
    assert error.value.location == str(tmp_path / "none")
    assert mt.InputError("my file.txt:3: a fault").location == "my file.txt:3"
    assert error.value.hint
    with pytest.raises(mt.InputError, match="no finished run"):
        mt.load(runs=tmp_path)


def test_one_pattern_of_text_to_keep(trained: Path) -> None:
    keeping = [mt.load(trained / "runs" / "tiny", keep=keep).translate("a b gh c") for keep in ("gh", ["gh"])]
    assert "gh" in keeping[0]
    assert keeping[0] == keeping[1]


def test_none_is_no_pattern_of_text_to_keep(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("a\tb\n")
    assert glossary_of(tmp_path / "terms.tsv", None) is not None
    assert glossary_of(None, None) is None


def test_importing_the_package_imports_no_library() -> None:
    code = "import mt, sys; print(sorted({name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.strip("[]\n").replace("'", "").split(", "))
    assert "mt" in imported
    assert not imported & {"torch", "numpy", "click", "tokenizers", "ctranslate2", "pydantic", "yaml"}
    assert set(dir(mt)) >= {"load", "train", "evaluate", "list_runs", "__version__"}
    assert mt.__version__
    with pytest.raises(AttributeError, match="no attribute 'translate_all'"):
        mt.translate_all  # noqa: B018
