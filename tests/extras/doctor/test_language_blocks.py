"""Blocks of lines in another language: planted in clean text, found, named, and dropped or swapped back by cleaning."""

import json
import random
import tracemalloc
from pathlib import Path

import pytest

from bench.languages import plant, same
from command import mt
from data_helpers import pairs_in, write_project
from mt.data.corpus import Pair
from mt.data.phrasebook import sentence_pairs
from mt.extras.doctor import bitexts, line_languages
from mt.extras.doctor.language_blocks import LanguageBlock, language_blocks
from mt.extras.doctor.line_languages import other_languages

GERMAN = (
    "Guten Morgen. Wo ist der Bahnhof? Ich habe Hunger. Das ist zu teuer. Bitte warten Sie hier. Er kommt heute nicht. "
    "Die Kinder schlafen schon. Haben Sie noch Brot? Wir gehen jetzt nach Hause. Das Wasser ist kalt. Sie liest ein "
    "Buch. Ich verstehe kein Wort. Der Zug hat Verspätung. Mein Bruder wohnt in der Stadt. Kann ich Ihnen helfen? Es "
    "regnet seit gestern. Die Tür ist zu. Wie spät ist es? Ich möchte gern bezahlen. Das Essen schmeckt gut. Wann "
    "beginnt der Film? Sie spielt jeden Tag Klavier. Wir brauchen mehr Zeit. Auf Wiedersehen."
).replace("? ", "?. ")
SHORT_GERMAN = [sentence if sentence[-1] in "?." else f"{sentence}." for sentence in GERMAN.split(". ")]
RUSSIAN = (
    "Доброе утро. Где находится вокзал? Я хочу есть. Это слишком дорого. Подождите здесь, пожалуйста. Сегодня он не "
    "придёт. Дети уже спят. У вас есть ещё хлеб? Мы идём домой. Вода холодная. Она читает книгу. Я не понимаю ни слова."
).split(". ")
NAMES = [f"lib{a}{b}-dev {c}" for a in ("gtk", "qt", "xml") for b in ("core", "gui", "tools") for c in (2, 3, 6, 17)]


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return list(sentence_pairs("train"))[:3000]


def notes(folder: Path) -> dict[str, list[str]]:
    report = json.loads(mt("data", "check", "a.yaml", "--json", cwd=folder).stdout)
    return {finding["name"]: [example["note"] for example in finding["examples"]] for finding in report["findings"]}


def cleaned(folder: Path, *options: str) -> list[Pair]:
    mt("data", "clean", "a.yaml", "--output", "clean", *options, cwd=folder)
    return pairs_in(folder / "clean")


def test_clean_text_raises_no_alarm(pairs: list[Pair]) -> None:
    assert not language_blocks(pairs, ("en", "it"))
    assert not language_blocks([], ("en", "it"))
    assert not language_blocks([("", "")] * 400, ("en", "it"))


def test_names_code_and_numbers_raise_no_alarm(pairs: list[Pair]) -> None:
    rng = random.Random(2)
    towns = ["Oslo", "Stuttgart", "Göttingen", "Bordeaux", "Saint-Denis", "Kraków", "Jyväskylä", "Newcastle upon Tyne"]
    lists = [*NAMES, *(f"{rng.choice(towns)} {rng.choice(towns)}" for _ in range(60)), *(f"{n}.5" for n in range(60))]
    text = [*pairs[:1000], *((line, f"– {line}") for line in lists), *pairs[1000:]]
    assert not language_blocks(text, ("en", "it"))


def test_planted_blocks_are_found_with_their_ends(pairs: list[Pair]) -> None:
    seed = random.randrange(10**6)  # another one each time
    planted, changed = plant(pairs, ("en", "it"), (SHORT_GERMAN * 9, "de"), random.Random(seed))
    found = language_blocks(changed, ("en", "it"))
    missed = [block for _, block in planted if not any(same(block, other) for other in found)]
    assert len(planted) >= 8, seed
    assert len(missed) <= 0.1 * len(planted), (seed, missed, found)
    assert len(found) <= len(planted), (seed, found)


@pytest.mark.parametrize(
    ("languages", "relatives"), [(("en", "xx"), ()), (("xx", "yy"), ()), (("en", "it"), (frozenset({"en", "it"}),))]
)
def test_the_corpus_itself_tells_unlisted_languages_and_close_relatives_apart(
    pairs: list[Pair],
    languages: tuple[str, str],
    relatives: tuple[frozenset[str], ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_languages, "_CONFUSABLE", relatives)
    text = [*pairs[:500], *((target, source) for source, target in pairs[500:540]), *pairs[540:]]
    [found] = language_blocks(text, languages)
    assert same(found, LanguageBlock(500, 540, None, ""))


def test_a_language_unlike_all_others_has_its_name(pairs: list[Pair]) -> None:
    foreign = [(RUSSIAN[n % len(RUSSIAN)], target) for n, (_, target) in enumerate(pairs[300:500])]
    [found] = language_blocks([*pairs[:300], *foreign, *pairs[500:1000]], ("en", "it"))
    assert found.language == "ru"  # each line is at the bound of the evidence for several languages
    assert same(found, LanguageBlock(300, 500, 0, "ru"))


@pytest.mark.slow
def test_short_lines_in_a_third_language_are_named_and_dropped(pairs: list[Pair], tmp_path: Path) -> None:
    foreign = [(source, german) for (source, _), german in zip(pairs[1200:], SHORT_GERMAN, strict=False)]
    write_project(tmp_path, [*pairs[:1200], *foreign, *pairs[1200 + len(foreign) :]])
    found = notes(tmp_path)
    assert found["wrong-language"] == [f"a.it: lines 1,201 to {1200 + len(foreign):,}: German"]
    assert "misaligned" not in found
    assert not set(foreign) & set(cleaned(tmp_path))
    assert set(foreign) <= set(cleaned(tmp_path, "--keep", "wrong-language", "--keep", "misaligned"))


def test_a_file_in_another_language_is_one_finding(pairs: list[Pair], tmp_path: Path) -> None:
    german = [(source, SHORT_GERMAN[n % len(SHORT_GERMAN)]) for n, (source, _) in enumerate(pairs[:400])]
    write_project(tmp_path, german)
    assert notes(tmp_path)["wrong-language"] == ["a.it: all lines: German"]


def test_swapped_files_are_named_with_the_fix_and_repaired(pairs: list[Pair], tmp_path: Path) -> None:
    write_project(tmp_path, [(target, source) for source, target in pairs])
    [note] = notes(tmp_path)["swapped"]
    assert note.startswith("a.it: all lines are swapped with those of a.en; write {source: a.it, target: a.en}, or ")
    kept = cleaned(tmp_path, "--repair")
    assert len(kept) > 2000
    assert set(kept) <= {(source.strip(), target.strip()) for source, target in pairs}


def test_right_pairs_beside_a_block_that_is_nearly_all_of_the_text_stay(pairs: list[Pair], tmp_path: Path) -> None:
    write_project(tmp_path, [*((target, source) for source, target in pairs[:920]), *pairs[920:1000]])
    [note] = notes(tmp_path)["swapped"]
    assert note.startswith("a.it: nearly all lines (1 to 9"), note
    assert "write {source: a.it, target: a.en}, or " in note
    right = {(source.strip(), target.strip()) for source, target in pairs[:1000]}
    last = [pair for pair in right if pair in {(src.strip(), tgt.strip()) for src, tgt in pairs[930:1000]}]
    for options, least in (((), 50), (("--repair",), 800)):
        kept = cleaned(tmp_path, *options)
        assert set(kept) <= right
        assert len(kept) >= least
        assert len(set(last) & set(kept)) > 0.8 * len(last)


@pytest.mark.slow
def test_half_of_a_text_may_be_swapped(pairs: list[Pair], tmp_path: Path) -> None:
    write_project(tmp_path, [*pairs[:1500], *((target, source) for source, target in pairs[1500:])])
    assert notes(tmp_path)["swapped"] == ["a.it: lines 1,501 to 3,000 are swapped with those of a.en"]
    kept = cleaned(tmp_path, "--repair")
    assert set(kept) <= {(source.strip(), target.strip()) for source, target in pairs}
    assert (tmp_path / "clean" / "repaired" / "swapped.tsv").read_text(encoding="utf-8").count("\n") > 1000


def test_a_pair_that_is_aligned_and_swapped_back_names_both_repairs() -> None:
    raw = bitexts.RawPair(1, "a b", "c", "", repairs=("alignment",), before=("a", "c"))
    [found] = bitexts._swapped_back(iter([raw]), [(0, 1)])
    assert found == raw._replace(source="c", target="a b", repairs=("alignment", "swapped"))


def test_only_the_pairs_of_blocks_are_swapped_back() -> None:
    rows = [bitexts.RawPair(n + 1, f"a{n}", f"b{n}", "no UTF-8" if n == 3 else "") for n in range(9)]
    tracemalloc.start()
    found = list(bitexts._swapped_back(iter(rows), [(0, 1), (2, 5), (5, 6), (8, 10**6)]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [raw.line - 1 for raw in found if raw.repairs == ("swapped",)] == [0, 2, 4, 5, 8]
    assert [raw for raw in found if not raw.repairs] == [rows[n] for n in (1, 3, 6, 7)]
    assert peak < 10**6


def test_a_short_line_is_judged_with_its_neighbours() -> None:
    italian = ["Buongiorno a tutti.", "Dove si trova la stazione?", "Ho molta fame.", "Il treno arriva in ritardo."]
    short = "Wir brauchen mehr Zeit."
    assert not list(other_languages([*italian, short, *italian], ("en", "it"), 1))
    found = dict(other_languages([*italian, *SHORT_GERMAN[:9], short, *SHORT_GERMAN[9:], *italian], ("en", "it"), 1))
    assert found[13].startswith("de, ")
    assert not found.keys() & {0, 1, 2, 3}
