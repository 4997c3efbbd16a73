"""Shortlists: the dictionary they learn, CTranslate2's file format, and translations restricted to them."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command import mt
from data_helpers import encode_text
from engine_helpers import Twins, configured, same, sentences
from model_helpers import scramble
from mt.bundle.load_translator import open_model
from mt.bundle.model_folder import build_model, new_model
from mt.bundle.to_ctranslate2 import convert
from mt.data.shortlist import Shortlist, make_shortlist
from mt.data.tokenizer import BYTES, SPECIALS, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError
from mt.storage.run_dir import VOCABULARY_MAP, ModelDir

# Words of one piece each, and what they mean; every sentence has `the`, and `la` for it.
WORDS = {f"{a}{b}": f"{b.upper()}{a.upper()}" for a in "bcdfg" for b in "aeiou"}
FIRST_PIECE = len(SPECIALS) + len(BYTES)


def dictionary_text() -> tuple[list[str], list[str]]:
    """Return sentences of random words in random order; `ba` has two translations, the name `xox` is copied."""
    rng = random.Random(1)
    pairs = []
    for _ in range(400):
        words = rng.sample(sorted(WORDS), rng.randint(2, 5))
        meanings = [WORDS[word] if word != "ba" else rng.choice([WORDS["ba"], "ZZ"]) for word in words]
        rng.shuffle(meanings)
        name = ["xox"] if rng.random() < 0.3 else []
        pairs.append((" ".join(["the", *words, *name]), " ".join([*name, *meanings, "la"])))
    pairs.sort(key=lambda pair: "gu" in pair[0])  # late, so that sampling must reach the end
    return [source for source, _ in pairs], [target for _, target in pairs]


def piece(tokenizer: BpeTokenizer, word: str) -> int:
    [only] = tokenizer.encode(word)
    return only


@pytest.fixture(autouse=True)
def few_frequent_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `la`, of the small vocabularies here, is frequent."""
    monkeypatch.setattr("mt.data.shortlist._ALWAYS", 1)


@pytest.fixture(scope="module", params=[False, True], ids=["separate", "shared"])
def aligned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    source, target = dictionary_text()
    pair = TokenizerPair.train(source, target, 480, request.param)
    return encode_text(tmp_path_factory.mktemp("corpus"), source, target, pair), pair


def test_the_likeliest_translations_are_the_dictionary(aligned: tuple) -> None:
    corpus, pair = aligned
    # In a shared vocabulary a piece lists itself first.
    itself = 1 if pair.shared else 0
    best = make_shortlist(corpus, 1 + itself, pair).by_source
    for word, meaning in WORDS.items():
        listed = best[piece(pair.source, word)][itself:]
        assert listed == [piece(pair.target, meaning)] or (word == "ba" and listed == [piece(pair.target, "ZZ")])
    two = make_shortlist(corpus, 2 + itself, pair).by_source[piece(pair.source, "ba")]
    assert set(two[itself:]) == {piece(pair.target, WORDS["ba"]), piece(pair.target, "ZZ")}


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_sizes_and_ids_are_within_their_bounds(aligned: tuple, size: int) -> None:
    corpus, pair = aligned
    made = make_shortlist(corpus, size, pair)
    assert made == make_shortlist(corpus, size, pair), "it is deterministic"
    assert all(1 <= len(listed) <= size and len(set(listed)) == len(listed) for listed in made.by_source.values())
    assert all(0 <= i < pair.target.vocab_size for listed in (made.always, *made.by_source.values()) for i in listed)
    assert all(len(SPECIALS) <= i < pair.source.vocab_size for i in made.by_source)
    assert len(made.always) <= 200
    assert len(set(made.always)) == len(made.always)


def test_the_longest_list_has_all_pieces_that_ever_stood_beside_one(aligned: tuple) -> None:
    corpus, pair = aligned
    made = make_shortlist(corpus, 1000, pair)
    sources, targets = dictionary_text()
    for source, target in zip(sources, targets, strict=True):
        for word in source.split():
            assert set(pair.target.encode(target)) <= {*made.always, *made.by_source[piece(pair.source, word)]}


def test_frequent_pieces_are_not_listed_again(aligned: tuple) -> None:
    corpus, pair = aligned
    made = make_shortlist(corpus, 1000, pair)
    assert made.always == [piece(pair.target, "la")]
    copies = {i: [i] for i in made.by_source} if pair.shared else {}
    assert all(not set(made.always) & set(listed) - set(copies.get(i, [])) for i, listed in made.by_source.items())


def test_a_longer_list_only_adds_and_starts_with_the_likeliest(aligned: tuple) -> None:
    corpus, pair = aligned
    short, long = (make_shortlist(corpus, size, pair) for size in (2, 6))
    assert short.always == long.always
    assert short.by_source == {source: listed[:2] for source, listed in long.by_source.items()}
    assert max(len(listed) for listed in long.by_source.values()) > 2


def test_bytes_list_themselves_and_pieces_where_they_are_shared(aligned: tuple) -> None:
    corpus, pair = aligned
    made = make_shortlist(corpus, 3, pair)
    assert all(made.by_source[i][0] == i for i in range(len(SPECIALS), FIRST_PIECE))
    if pair.shared:
        assert all(made.by_source[piece(pair.source, word)][0] == piece(pair.source, word) for word in WORDS)


def test_every_piece_of_a_shared_vocabulary_lists_itself(aligned: tuple, tmp_path: Path) -> None:
    """Names can be copied that no training sentence copies, even if the target text lacks them."""
    _, pair = aligned
    if not pair.shared:
        pytest.skip("separate vocabularies")
    last = pair.source.tokens([pair.source.vocab_size - 1])[0].replace("▁", "")
    corpus = encode_text(tmp_path, ["ba be", last], ["AB", "EB"], pair)
    made = make_shortlist(corpus, 3, pair)
    assert all(i in made.by_source.get(i, []) for i in range(FIRST_PIECE, pair.source.vocab_size))


def test_a_large_corpus_is_sampled_evenly(aligned: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, pair = aligned
    n_src, n_tgt = corpus.lengths()
    pairs = int(np.sum((n_src - 2) * (n_tgt - 1)))  # without specials
    size = 3 if pair.shared else 2
    whole = make_shortlist(corpus, size, pair).by_source
    monkeypatch.setattr("mt.data.shortlist._MAX_PAIRS", pairs // 2 - 1)
    monkeypatch.setattr("mt.data.shortlist._SENTENCES_AT_ONCE", 7)
    sampled = make_shortlist(corpus, size, pair).by_source
    assert sampled != whole
    assert piece(pair.target, WORDS["gu"]) in sampled[piece(pair.source, "gu")]
    found = [piece(pair.target, meaning) in sampled[piece(pair.source, word)] for word, meaning in WORDS.items()]
    assert sum(found) >= 0.9 * len(WORDS)


def test_the_blocks_do_not_matter(aligned: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, pair = aligned
    whole = make_shortlist(corpus, 4, pair)
    monkeypatch.setattr("mt.data.shortlist._PAIRS_AT_ONCE", 50)
    assert make_shortlist(corpus, 4, pair) == whole


def parsed(path: Path, pair: TokenizerPair) -> Shortlist:
    """Read a map as CTranslate2 does: on each line a source piece, a tab, and space-separated target pieces."""
    ids = [{name: i for i, name in enumerate(t.pieces)} for t in (pair.source, pair.target)]
    lists: dict[str, list[int]] = {}
    for line in path.read_text().removesuffix("\n").split("\n"):
        source, targets = line.split("\t")
        assert source not in lists
        lists[source] = [ids[1][name] for name in targets.split(" ") if name]
    always = lists.pop("")
    return Shortlist(always, {ids[0][source]: listed for source, listed in lists.items()})


@pytest.mark.parametrize("shared", [False, True])
def test_white_space_in_pieces_does_not_corrupt_the_map(tmp_path: Path, shared: bool) -> None:
    source = ["a\tb c\u00a0d", "e\u2028f\u3000g", "a b c", "a\tb x\x0cy"] * 3
    target = ["A\tB C\u00a0D", "E\u2028F\u3000G", "A B C", "A\tB X\x0cY"] * 3
    pair = TokenizerPair.train(source, target, 480, shared)
    blank = {i for i, name in enumerate(pair.target.pieces) if name.split() != [name]}
    blank_sources = {
        i for i in range(pair.source.vocab_size) if pair.source.tokens([i])[0].split() != pair.source.tokens([i])
    }
    assert blank
    assert blank_sources
    made = make_shortlist(encode_text(tmp_path, source, target, pair), 8, pair)
    made = replace(made, always=[*made.always, *range(len(SPECIALS), FIRST_PIECE)])  # so that each sentence has some
    assert blank & {*made.always, *(i for listed in made.by_source.values() for i in listed)}
    assert blank_sources & set(made.by_source)
    config = configured(f"tokenizer.shared={str(shared).lower()}")
    model = build_model(config, pair)
    scramble(model)
    folder = ModelDir(tmp_path / "model")
    convert(model.eval(), config, pair, folder, made)
    for kind in ("float32", "int8"):
        found = parsed(folder.converted(kind) / VOCABULARY_MAP, pair)
        assert found.always == [i for i in made.always if i not in blank]
        assert found.by_source == {
            i: [j for j in listed if j not in blank] for i, listed in made.by_source.items() if i not in blank_sources
        }
    engine = Twins(folder, config, pair, model).fast(shortlist=True)
    ids = pair.source.encode_batch(source[:4])
    allowed = [{*made.always, *(j for i in one for j in made.by_source.get(i, []))} - blank for one in ids]
    for [best], few in zip(engine.translate(ids, SearchOptions(2, max_length=6)), allowed, strict=True):
        assert set(best.ids) <= few


@pytest.fixture(scope="module")
def listed(aligned: tuple, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    """Return a model folder with a shortlist of a few target pieces for each source piece."""
    _, pair = aligned
    rng = random.Random(2)
    possible = range(FIRST_PIECE, pair.target.vocab_size)
    shortlist = Shortlist(
        [rng.choice(possible) for _ in range(4)],
        {i: sorted(rng.sample(possible, 3)) for i in range(len(SPECIALS), pair.source.vocab_size)},
    )
    config = configured(f"tokenizer.shared={str(pair.shared).lower()}", "decoding.shortlist=3")
    model = build_model(config, pair)
    scramble(model)
    folder = ModelDir(tmp_path_factory.mktemp("listed") / "model")
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with new_model(folder, config, pair, weights, {}, shortlist) as partial:
        partial.readme.write_text("# A model\n")
    return Twins(folder, config, pair, model.eval()), shortlist


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_have_listed_pieces_only(listed: tuple, beam_size: int, compute_type: str) -> None:
    both, shortlist = listed
    ids = sentences([5, 1, 3], both.tokenizers.source.vocab_size, seed=5)
    options = SearchOptions(beam_size, n_best=beam_size, max_length=10)
    free = both.fast(compute_type).translate(ids, options)
    bound = both.fast(compute_type, shortlist=True)
    unlisted = []
    for number, sentence in enumerate(ids):
        allowed = {*shortlist.always, *(j for i in sentence for j in shortlist.by_source[i])}
        [hypotheses] = bound.translate([sentence], options)
        assert {i for h in hypotheses for i in h.ids} <= allowed
        unlisted.append({i for h in free[number] for i in h.ids} - allowed)
    # Where int8 products saturate (processors without VNNI), a free translation may have listed pieces only.
    assert all(unlisted) if compute_type == "float32" else any(unlisted)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_prefix_is_continued_without_a_shortlist(listed: tuple, beam_size: int) -> None:
    both, shortlist = listed
    ids = sentences([5, 1, 3, 4], both.tokenizers.source.vocab_size, seed=5)
    options = SearchOptions(beam_size, n_best=beam_size, max_length=10)
    allowed = {*shortlist.always, *(j for i in ids[1] for j in shortlist.by_source[i])}
    foreign = next(i for i in range(FIRST_PIECE, both.tokenizers.target.vocab_size) if i not in allowed)
    prefixes = [[foreign], [], shortlist.always[:2], [shortlist.always[0], foreign]]
    free, bound = (both.fast(shortlist=each).translate(ids, options, prefixes) for each in (False, True))
    same([bound[0], *bound[2:]], [free[0], *free[2:]])
    assert {i for h in bound[1] for i in h.ids} <= allowed


def test_an_option_overrides_the_configuration(listed: tuple) -> None:
    both, _ = listed
    for wanted, used in (None, True), (True, True), (False, False):
        found = open_model(both.folder, EngineChoice(shortlist=wanted))
        assert ("with shortlist" in found.engine) == used
        exact = both.fast(shortlist=used).translate([[270, 280, 290]], SearchOptions(2, max_length=6))
        assert found.translator.engine.translate([[270, 280, 290]], SearchOptions(2, max_length=6)) == exact


def test_a_missing_shortlist_is_refused(trained: Path, listed: tuple, tmp_path: Path) -> None:
    done = mt("translate", "a b", "--shortlist", cwd=trained, code=2)
    assert "no shortlist" in done.stderr
    assert "decoding.shortlist" in done.stderr
    assert done.stdout == ""
    mt("translate", "a b", "--no-shortlist", cwd=trained)
    with pytest.raises(InputError, match="no shortlist"):
        open_model(ModelDir(trained / "runs" / "tiny" / "model"), EngineChoice(shortlist=True))
