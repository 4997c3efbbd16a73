"""Translations that have the terms of a glossary, in both engines and from the command line."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine_helpers import (
    PUSHABLE,
    Twins,
    ending_model,
    endless_model,
    printed,
    printed_lines,
    run_cli,
    sentences,
    translation_settings,
    twins,
    whole_folder,
)
from mt.api.loading import load
from mt.data.glossary import Glossary
from mt.data.terms import Term, Terms
from mt.data.tokenizer import EOS_ID, SPACE, BpeTokenizer
from mt.decoding.alignment import Unit
from mt.decoding.engine import Engine, EngineChoice, Hypothesis, Sampling, SearchOptions, Sentences
from mt.decoding.prefix import Prefix, speller_of
from mt.decoding.runaway import is_runaway
from mt.decoding.scoring import forced_score
from mt.decoding.search import pad_sources
from mt.decoding.terms import Sentence, TermSearch
from mt.decoding.translator import Translator
from mt.errors import InputError
from mt.storage.run_dir import ModelDir

IDS = sentences([7, 2, 4], 290)
OPTIONS = SearchOptions(beam_size=4, n_best=2, max_length=30)
LINES = ["A dog runs over the grass.", "Two men are talking.", "The old house.", "A DOG, a house and grass"]
TEXT = ["Two women laugh.", "Children play on the hill.", "A boy jumps into the water.", "People walk along a street."]
TSV = "dog\tHund\ngrass\tGras\nmen\tMänner reden\nhouse\tHaus\nold\t\n"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return twins(tmp_path_factory.mktemp("twins"), model=lambda config: ending_model(config, IDS, OPTIONS))


@pytest.fixture
def tsv(tmp_path: Path) -> Path:
    (tmp_path / "terms.tsv").write_text(TSV)
    return tmp_path / "terms.tsv"


def translators(both: Twins, glossary: Glossary | None) -> list[Translator]:
    made = [Translator(engine, both.tokenizers, translation_settings()) for engine in (both.fast(), both.slow())]
    return [replace(each, glossary=glossary) for each in made]


@pytest.mark.parametrize("beam", [1, 4])
def test_every_translation_has_the_terms(both: Twins, tsv: Path, beam: int) -> None:
    glossary = Glossary(tsv, ["talk.*"])
    options = replace(OPTIONS, beam_size=beam, n_best=min(beam, 2))
    results = []
    for translator in translators(both, glossary):
        found = translator.translate(LINES, options)
        for line, candidates in zip(LINES, found, strict=True):
            terms = glossary.terms("", "de").find(line)
            assert len(terms) >= 2
            for candidate in candidates:
                assert all(term.is_in(candidate.text) for term in terms)
                [part] = candidate.parts
                src_tokens = pad_sources([part.source], torch.device("cpu"))
                [expected] = forced_score(both.model, src_tokens, [part.target])
                assert candidate.log_prob == pytest.approx(expected, abs=1e-3)
                assert candidate.score == pytest.approx(expected / (len(part.target) + 1), abs=1e-3)
        results.append([[candidate.text for candidate in candidates] for candidates in found])
    assert results[0] == results[1]


def test_other_lines_do_not_change(both: Twins, tsv: Path) -> None:
    [without, _] = translators(both, None)
    [having, _] = translators(both, Glossary(tsv))
    lines = ["No term here.", "A dog.", "", *TEXT]
    for options in (OPTIONS, replace(OPTIONS, n_best=1), replace(OPTIONS, n_best=1, length_penalty=0.0)):
        found, expected = having.translate(lines, options), without.translate(lines, options)
        assert found[1] != expected[1]
        del found[1], expected[1]
        assert [[c.text for c in each] for each in found] == [[c.text for c in each] for each in expected]


def test_a_term_goes_where_all_of_it_is_likeliest() -> None:
    """Not where its first token alone is."""
    tokenizer = BpeTokenizer.train([*TEXT * 3, "7 7 7 5 5 5"], 420)
    best, term = tokenizer.encode("A dog talks"), tokenizer.encode("75")
    places = [place for place, token in enumerate(tokenizer.tokens(best)) if token.startswith(SPACE)]
    cheap, right = places[1], places[-1]

    def next_log_probs(sources: Sentences, targets: Sentences) -> Iterator[np.ndarray]:
        for ids in targets:
            rows = np.full((len(ids) + 1, tokenizer.vocab_size), -9.0, np.float32)
            rows[cheap : cheap + 1, term[0]], rows[right : right + 1, term[0]] = -1, -2
            if ids[: right + 1] == [*best[:right], term[0]]:
                rows[right + 1 :] = -1
            yield rows

    def search(sentences: Sequence[Sentence], options: SearchOptions) -> list[list[Hypothesis]]:
        return [[Hypothesis.of(sentence.prefix.forced, -1.0, 1.0)] for sentence in sentences]

    text = "A dog talks 75"
    sentence = Sentence(tokenizer.encode(text), Prefix(), Terms({}, (), ("en", "de")).find(text, True), 50, text)
    terms = TermSearch(search, next_log_probs, tokenizer, True, lambda *_: [])
    [[found]] = terms.complete([sentence], [[Hypothesis.of(best, -1.0, 1.0)]], SearchOptions(1))
    assert found.ids[: right + len(term)] == [*best[:right], *term]


@dataclass
class Recorder:
    """An engine that records how many sentences were searched with which options."""

    engine: Engine
    searches: list[tuple[int, SearchOptions]] = field(default_factory=list)

    def translate(self, sentences: Sentences, options: SearchOptions, prefixes: Sentences = ()) -> Any:
        self.searches.append((len(sentences), options))
        return self.engine.translate(sentences, options, prefixes)

    def next_log_probs(self, sentences: Sentences, targets: Sentences) -> Any:
        return self.engine.next_log_probs(sentences, targets)


@pytest.mark.parametrize("attention", [False, True])
def test_attention_is_in_memory_for_a_block_of_sentences(
    both: Twins, tsv: Path, monkeypatch: pytest.MonkeyPatch, attention: bool
) -> None:
    monkeypatch.setattr("mt.decoding.translator._TERM_BLOCK", 3)
    options, lines = replace(OPTIONS, attention=attention), [*TEXT[:1], *LINES, *TEXT[1:], "An old dog."]
    for translator in translators(both, Glossary(tsv)):
        engine = Recorder(translator.engine)
        found = replace(translator, engine=engine).translate(lines, options)
        wide = [size for size, each in engine.searches if each.attention and each.n_best == OPTIONS.beam_size]
        assert wide == [3, 2]
        alone = [translator.translate([line], options)[0] for line in lines]
        assert [[c.text for c in each] for each in found] == [[c.text for c in each] for each in alone]
        attentions = [part.attention for each in found for candidate in each for part in candidate.parts]
        assert any(rows is not None for rows in attentions) is attention


def test_the_vocabulary_is_read_once(both: Twins) -> None:
    tokenizer, before = BpeTokenizer.train(TEXT, 280), speller_of.cache_info().misses
    for _ in range(3):
        term_search(both.slow(), tokenizer)
    assert speller_of.cache_info().misses == before + 1


def test_a_translation_that_has_them_stays(both: Twins, tmp_path: Path) -> None:
    """The best that has them, even where a hypothesis without is likelier."""
    [without, _] = translators(both, None)
    hypotheses = without.translate(LINES[:1], replace(OPTIONS, n_best=4))[0]
    words = [set(candidate.text.split()) for candidate in hypotheses]
    for number in range(len(words)):
        own = sorted(word for word in words[number] - set().union(*words[:number]) if word.isalpha())
        if own:
            (tmp_path / "own.tsv").write_text(f"dog\t{own[0]}\n")
            [having, _] = translators(both, Glossary(tmp_path / "own.tsv"))
            assert having.translate(LINES[:1], OPTIONS)[0][0].text == hypotheses[number].text


def test_a_prefix_and_terms(both: Twins, tsv: Path) -> None:
    for translator in translators(both, Glossary(tsv)):
        for prefix in ("Das H", "Der ", "Ein Hund und"):
            found = translator.translate(LINES, OPTIONS, prefixes=[prefix] * len(LINES))
            assert all(candidate.text.startswith(prefix.strip()) for each in found for candidate in each)
            assert "Hund" in found[0][0].text


def test_no_room(both: Twins, tsv: Path) -> None:
    """A translation that would be too long stays without the term."""
    for translator in translators(both, Glossary(tsv)):
        options = replace(OPTIONS, max_length=2)
        assert all(len(each[0].parts[0].target) <= 2 for each in translator.translate(LINES, options))


def test_samples_are_refused(both: Twins, tsv: Path) -> None:
    [_, slow] = translators(both, Glossary(tsv))
    with pytest.raises(InputError, match="samples cannot be made to have terms"):
        slow.translate(LINES, replace(OPTIONS, sampling=Sampling()))
    assert slow.translate(["Nothing."], replace(OPTIONS, sampling=Sampling()))


def test_samples_with_terms_are_refused_before_the_work(tmp_path: Path, tsv: Path, folder: Path) -> None:
    (tmp_path / "text").write_text("Nothing.\n")
    text, given = tmp_path / "text", ("--model", folder, "--engine", "torch", "--sample", "--glossary", tsv)
    for command in (("eval", "--source", text, "--reference", text), ("translate", "--input", text)):
        with pytest.raises(InputError, match="--sample and a glossary or text to keep contradict each other"):
            run_cli(*command, *given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_folder(tmp_path_factory.mktemp("model"), "decoding.max_length=30").root


def test_the_command(tmp_path: Path, tsv: Path, folder: Path) -> None:
    model = ["--model", folder]
    for engine in ("ctranslate2", "torch"):
        found = printed_lines("translate", *LINES[:2], "--glossary", tsv, "--keep", "are", "--engine", engine, *model)
        assert all(word in found[0].split() for word in ("Hund", "Gras"))
        assert "are" in found[1].split()
    [line] = printed_lines("translate", "A dog.", "--glossary", tsv, "--format", "jsonl", "--n-best", "2", *model)
    assert all("Hund" in each["text"].split() for each in json.loads(line)["n_best"])
    (tmp_path / "page.md").write_text("# The dog\n\nThe *old* house.\n")
    run_cli("translate", tmp_path / "page.md", "--output", tmp_path / "new.md", "--glossary", tsv, *model)
    assert "Hund" in (tmp_path / "new.md").read_text()


def test_a_conflict_is_reported_before_the_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("a\tb\na\tc\n")
    with pytest.raises(InputError, match=r"terms\.tsv:2: 'a' is 'c' here and 'b' in line 1"):
        load(tmp_path / "no model", glossary=tmp_path / "terms.tsv")


TBX = """<martif><text><body><termEntry>
<langSet xml:lang="en"><tig><term>dog</term></tig></langSet>
<langSet xml:lang="de"><tig><term>Hund</term></tig></langSet>
</termEntry></body></text></martif>
"""


def test_terms_in_several_languages_wait_for_the_source_language(both: Twins, tmp_path: Path) -> None:
    (tmp_path / "terms.tbx").write_text(TBX)
    [_, plain] = translators(both, None)
    settings = replace(plain.settings, source_lang="en,fr")
    having = replace(plain, settings=settings, glossary=Glossary(tmp_path / "terms.tbx"))
    assert "Hund" in having.to(None, "en").translate(LINES[:1], OPTIONS)[0][0].text
    with pytest.raises(InputError, match="no source language was chosen") as caught:
        having.translate(LINES[:1], OPTIONS)
    assert caught.value.hint == "choose with --from"
    with pytest.raises(InputError, match="no term in fr and de"):  # before anything is translated
        having.to(None, "fr")


def test_evaluation(tmp_path: Path, tsv: Path, folder: Path) -> None:
    (tmp_path / "text").write_text("\n".join([*LINES, "Nothing."]) + "\n")
    text = ["--source", tmp_path / "text", "--reference", tmp_path / "text"]
    found = json.loads(printed("eval", "--model", folder, *text, "--json", "--glossary", tsv))
    assert [result["terms"] for result in found["results"]] == [100.0] * len(found["results"])
    table = printed("eval", "--model", folder, *text, "--keep", "dog|talk")
    assert "terms %" in table
    assert "terms" not in printed("eval", "--model", folder, *text)
    assert "terms" not in printed("eval", "--model", folder, *text, "--keep", "xyz")
    [without, having] = (load(folder, glossary=path)._opened.translator for path in (None, tsv))
    assert without.term_share(LINES, LINES) is None
    assert having.term_share(["A dog", "the grass", "a cat"], ["Ein Hund", "die Wiese", "Hund"]) == 50


def test_a_server_has_the_terms(tsv: Path, folder: Path) -> None:
    pytest.importorskip("fastapi")
    from mt.extras.serving.service import open_directions

    [direction] = open_directions([ModelDir(folder)], EngineChoice(), Glossary(tsv))
    [[candidate]] = direction.translator.translate(["A dog."], replace(direction.search, n_best=1))
    assert "Hund" in candidate.text.split()


def test_a_server_of_several_directions_needs_the_languages_of_terms(
    tmp_path: Path, tsv: Path, folder: Path, notices: list[str]
) -> None:
    pytest.importorskip("fastapi")
    from mt.extras.serving.service import open_directions

    other = whole_folder(tmp_path / "back", "data.source_lang=de", "data.target_lang=fr")
    folders = [ModelDir(folder), other]
    with pytest.raises(InputError, match=r"terms\.tsv: a TSV file does not name its languages"):
        open_directions(folders, EngineChoice(), Glossary(tsv))
    (tmp_path / "terms.tbx").write_text(TBX)
    (tmp_path / "kept.tsv").write_text("old\t\n")
    terms, other_terms = (
        each.translator._terms for each in open_directions(folders, EngineChoice(), Glossary(tmp_path / "terms.tbx"))
    )
    assert (len(terms.find("dog")), other_terms.find("dog")) == (1, [])
    assert any("no term in de and fr" in notice for notice in notices)
    assert open_directions(folders, EngineChoice(), Glossary(tmp_path / "kept.tsv"))


def term_search(engine: Engine, tokenizer: Any, *units: Unit, is_spaced: bool = True) -> TermSearch:
    """Return a search for terms with an engine, in which `units` are the words of all translations."""

    def search(sentences: Sequence[Sentence], options: SearchOptions) -> list[list[Hypothesis]]:
        sources, forced = [each.source for each in sentences], [each.prefix.forced for each in sentences]
        return engine.translate(sources, options, forced)

    return TermSearch(search, engine.next_log_probs, tokenizer, is_spaced, lambda *_: units)


def test_a_term_that_the_vocabulary_lacks_is_left_out(both: Twins, tsv: Path) -> None:
    search = term_search(both.slow(), both.tokenizers.target)
    strange = Term(0, 3, ("zu\u0308g",))  # decomposed, which the tokenizer composes
    source = both.tokenizers.source.encode(LINES[0])
    found = both.slow().translate([source], OPTIONS)
    [result] = search.complete([Sentence(source, Prefix(), [strange], 30)], found, OPTIONS)
    assert result == found[0]


def test_a_term_replaces_the_word_that_is_aligned_to_it(both: Twins) -> None:
    source, tokenizer = both.tokenizers.source.encode(LINES[0]), both.tokenizers.target
    text = "Der alte Mann geht nach Hause"
    hypothesis, options = Hypothesis.of(tokenizer.encode(text), -9.0, 1.0), replace(OPTIONS, attention=True)
    for start, engine in product((4, 9, 14, 19), (both.slow(), both.fast())):
        unit = Unit(start, start + 2, 2, ((0, 0.2), (2, 0.8)))
        search = term_search(engine, tokenizer, unit)
        sentence = Sentence(source, Prefix(), [Term(2, 5, ("Hund",))], 60, LINES[0])
        [[found, *_]] = search.complete([sentence], [[hypothesis]], options)
        assert tokenizer.decode(found.ids).startswith(f"{text[:start]}Hund")
        assert found.attention is None or len(found.attention) in (len(found.ids), len(found.ids) + 1)


def test_a_term_begins_a_later_sentence_with_a_capital(both: Twins) -> None:
    tokenizer = both.tokenizers.target
    text = "Das Haus. Der alte Mann"
    for start, expected in ((10, "Das Haus. Hund"), (14, "Das Haus. Der hund")):
        search = term_search(both.slow(), tokenizer, Unit(start, start + 1, 2, ((2, 1.0),)))
        sentence = Sentence(both.tokenizers.source.encode(LINES[0]), Prefix(), [Term(2, 5, ("hund",))], 60, LINES[0])
        hypothesis = Hypothesis.of(tokenizer.encode(text), -9.0, 1.0)
        [[found, *_]] = search.complete([sentence], [[hypothesis]], OPTIONS)
        assert tokenizer.decode(found.ids).startswith(expected)


def test_a_translation_that_ends_with_a_term_has_attention(both: Twins) -> None:
    """By which tags in a sentence are placed."""
    tokenizer, engine = both.tokenizers.target, both.slow()

    def ending(sources: Sentences, targets: Sentences) -> Iterator[Any]:
        for rows in engine.next_log_probs(sources, targets):
            rows[-1, EOS_ID] = 0.0
            yield rows

    ids, source = tokenizer.encode("Der alte Mann"), both.tokenizers.source.encode(LINES[0])
    rows = [[float(row == column) for column in range(len(source))] for row in range(len(ids))]
    search = replace(term_search(engine, tokenizer, Unit(9, 13, 2, ((2, 1.0),))), next_log_probs=ending)
    sentence = Sentence(source, Prefix(), [Term(2, 5, ("Hund",))], 60, LINES[0])
    [[found]] = search.complete([sentence], [[Hypothesis(ids, -9.0, -1.0, rows)]], OPTIONS)
    assert (tokenizer.decode(found.ids), found.attention) == ("Der alte Hund", rows)


def test_no_term_stands_behind_a_space_of_its_own(both: Twins) -> None:
    """It would begin with a second one."""
    tokenizer = both.tokenizers.target
    space, dot = map(tokenizer.pieces.index, (SPACE, "."))
    ids = [*tokenizer.encode("Das"), space, dot, *tokenizer.encode("Haus")]
    hypothesis = Hypothesis.of(ids, -9.0, 1.0)
    for unit in (Unit(place, place + 1, 2, ((2, 1.0),)) for place in range(len(tokenizer.decode(ids)))):
        search = term_search(both.slow(), tokenizer, unit)
        sentence = Sentence(both.tokenizers.source.encode(LINES[0]), Prefix(), [Term(2, 5, ("(x)",))], 60, LINES[0])
        [[found, *_]] = search.complete([sentence], [[hypothesis]], OPTIONS)
        assert "  " not in tokenizer.decode(found.ids).partition("(x)")[0]


def test_spans_are_kept_but_in_samples(both: Twins) -> None:
    spans, options = ("www.dog.org", "2048", "\U0001f600", "{dog}"), SearchOptions(4, max_length=80)
    lines, found = [f"A dog {span} runs." for span in spans], []
    for translator in translators(both, None):
        plain = translator.best(lines, options)
        kept = translator.best(lines, replace(options, keep_spans=True))
        assert not any(span in text for span, text in zip(spans, plain, strict=True))
        assert all(span in text for span, text in zip(spans, kept, strict=True))
        found.append(kept)
    assert found[0] == found[1]
    [_, slow] = translators(both, None)
    sampling = replace(options, beam_size=1, sampling=Sampling())
    assert slow.translate(lines, replace(sampling, keep_spans=True)) == slow.translate(lines, sampling)


def kept_numbers(both: Twins, first: str, count: int, *keep: str) -> tuple[Sentence, Hypothesis, TermSearch, list[int]]:
    """Return a row of numbers, its translation without them, a search for them, and a list that its searches extend."""
    text, searched = " ".join([first, *map(str, range(101, 101 + count))]), []
    search = term_search(both.slow(), both.tokenizers.target)

    def noted(sentences: Sequence[Sentence], options: SearchOptions) -> list[list[Hypothesis]]:
        searched.extend([1] * len(sentences))
        return search.search(sentences, options)

    terms = Terms({}, [*map(re.compile, keep)]).find(text, spans=True)
    sentence = Sentence(both.tokenizers.source.encode(text), Prefix(), terms, 200, text)
    free = Hypothesis.of(both.tokenizers.target.encode("Das alte Haus 105"), -9.0, 1.0)
    return sentence, free, replace(search, search=noted), searched


@pytest.mark.parametrize(("numbers", "forced"), [((9,), True), ((10,), False), ((10, "[0-9]+"), True)], ids=repr)
def test_many_numbers_are_searched_for_only_if_the_user_keeps_them(both: Twins, numbers: Any, forced: bool) -> None:
    sentence, free, search, searched = kept_numbers(both, "dogs", *numbers)
    worse = Hypothesis.of(both.tokenizers.target.encode("Haus"), -1.0, 1.0)
    sentence = sentence._replace(longest=90)
    [[found]] = search.complete([sentence], [[worse, free]], replace(OPTIONS, max_length=90))
    assert bool(searched) is forced
    assert not search.missing(sentence, found.ids) if forced else found == free


@pytest.mark.parametrize("keep", [(), ("[0-9]+",)])
def test_a_full_translation_is_searched_again_only_for_what_the_user_keeps(both: Twins, keep: tuple[str, ...]) -> None:
    sentence, free, search, searched = kept_numbers(both, "dogs", 5, *keep)
    full = sentence._replace(longest=len(free.ids))
    assert full.longest < 2 * len(full.source)
    [[found]] = search.complete([full], [[free]], OPTIONS)
    assert bool(searched) is bool(keep)
    assert (found == free) is not bool(keep)


def test_kept_text_alone_is_copied(both: Twins) -> None:
    sentence, free, search, searched = kept_numbers(both, "(7);", 16)
    [[found]] = search.complete([sentence], [[free]], OPTIONS)
    assert both.tokenizers.target.decode(found.ids).strip() == sentence.text
    assert not searched
    source = pad_sources([sentence.source], torch.device("cpu"))
    [expected] = forced_score(both.model, source, [found.ids])
    assert found.log_prob == pytest.approx(expected, abs=1e-3)
    for longest in (3, 200):
        changed = sentence._replace(prefix=Prefix(text="D"), longest=longest)
        [[found]] = search.complete([changed], [[free]], OPTIONS)
        assert found == free


def completed(both: Twins, prefix: Prefix, term: Term, longest: int = 60, start: int = -1) -> Hypothesis:
    """Return the completion of a prefix, freely continued as `Das alte Haus`, in which a word is aligned to a term."""
    tokenizer, source = both.tokenizers.target, both.tokenizers.source.encode(LINES[0])
    units = [Unit(start, start + 1, 2, ((2, 1.0),))] if start >= 0 else []
    search = term_search(both.slow(), tokenizer, *units)
    free = Hypothesis.of(tokenizer.encode("Das alte Haus"), -9.0, 1.0)
    sentence = Sentence(source, prefix, [term], longest, LINES[0])
    [[found, *_]] = search.complete([sentence], [[free]], OPTIONS)
    return found


def test_a_term_replaces_the_guess_behind_a_prefix(both: Twins) -> None:
    tokenizer, term = both.tokenizers.target, Term(2, 5, ("Hund",))
    prefix = speller_of(tokenizer).encode("Das ")
    n_guessed = prefix.n_complete + len(tokenizer.encode("alte"))
    prefix = prefix._replace(forced=tokenizer.encode("Das alte")[:n_guessed])
    assert tokenizer.decode(completed(both, prefix, term, start=4).ids).startswith("Das Hund")
    ids = tokenizer.encode("Das alte Haus")
    whole = Prefix("Das", tokenizer.encode("Das"), 0, tokenizer.encode("Das"))
    assert tokenizer.decode(completed(both, whole, term, start=0).ids).startswith("Das")
    found = completed(both, whole, term, start=4)
    assert found.ids != ids
    source = pad_sources([both.tokenizers.source.encode(LINES[0])], torch.device("cpu"))
    [expected] = forced_score(both.model, source, [found.ids], len(whole.ids))
    assert found.log_prob == pytest.approx(expected, abs=1e-3)  # of the completion


def test_a_term_completes_the_last_word_of_a_prefix(both: Twins) -> None:
    tokenizer = both.tokenizers.target
    free = tokenizer.encode("Das alte Haus")
    for text, word, expected in (("Das a", "am", "Das am"), ("Das a", "Hund", "Das alte Haus")):
        prefix = speller_of(tokenizer).encode(text)._replace(forced=free[:-1])
        room = prefix.n_complete + len(tokenizer.encode(word))  # for no other place
        found = completed(both, prefix, Term(2, 5, (word,)), room + 2)
        assert tokenizer.decode(found.ids).startswith(expected)


@pytest.mark.parametrize("form", ["Hund", "2024", "(x)"])
def test_no_space_before_a_term_in_a_language_without_spaces(both: Twins, form: str) -> None:
    tokenizer, source = both.tokenizers.target, both.tokenizers.source.encode(LINES[0])
    hypothesis = Hypothesis.of(tokenizer.encode("Der alte Mann"), -9.0, 1.0)
    for start, expected in ((0, form), (4, f"Der{form}"), (9, f"Der alte{form}")):
        unit = Unit(start, start + 1, 2, ((2, 1.0),))
        search = term_search(both.slow(), tokenizer, unit, is_spaced=False)
        sentence = Sentence(source, Prefix(), [Term(2, 5, (form,), is_spaced=False)], 60, LINES[0])
        [[found, *_]] = search.complete([sentence], [[hypothesis]], OPTIONS)
        assert tokenizer.decode(found.ids).startswith(expected)


def test_loops_behind_a_term_are_searched_again(tmp_path: Path, tsv: Path) -> None:
    endless = twins(tmp_path, *PUSHABLE, model=endless_model)
    options = SearchOptions(beam_size=1, max_length=20)
    for translator in translators(endless, Glossary(tsv)):
        for retry in (False, True):
            [[found]] = translator.translate(["A dog runs."], replace(options, retry_loops=retry))
            assert "Hund" in found.text
            assert is_runaway(found.parts[0].source, found.parts[0].target) is not retry
