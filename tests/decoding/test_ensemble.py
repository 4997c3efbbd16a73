"""Ensembles and checkpoints as models: averaged distributions, and compatibility checks."""

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copyfile, copytree

import pytest
import torch
from safetensors.torch import load_file

from command import mt
from conftest import made_once, make_project
from engine_helpers import ENGLISH, GERMAN, LIVELY, configured, run_cli, tokenizers, whole_folder
from model_helpers import DECODER_ONLY, close, lively_model, small_model, sources
from mt.bundle.load_translator import open_model
from mt.bundle.model_folder import load_model
from mt.data.tokenizer import EOS_ID, SOS_ID, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.candidates import distinct
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.decoding.ensemble import Ensemble
from mt.decoding.search import log_probs_of, search
from mt.decoding.translator import Translator
from mt.errors import InputError
from mt.model.transformer import Transformer, set_parameters
from mt.storage.find_model import find_model
from mt.storage.run_dir import CheckpointDir, ModelDir, RunDir
from resume_helpers import hurt, run_of, train

TEXT = [*ENGLISH, "", "The dog is old.", "Men on the grass", "talking"]
BEAM = SearchOptions(3, n_best=3, max_length=8)
GREEDY = SearchOptions(1, max_length=8)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> ModelDir:
    return whole_folder(tmp_path_factory.mktemp("first") / "model", *LIVELY)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> ModelDir:
    """Return a model of another size with the same tokenizer."""
    changes = ["model.d_model=24", "model.decoder_layers=2", "model.positions=sinusoidal", "model.norm=post"]
    return whole_folder(tmp_path_factory.mktemp("second") / "model", *LIVELY, *changes)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Return a finished run whose checkpoints have moving averages."""
    changes = "training.ema_decay=0.9", "training.learning_rate=1.0e-2"
    return run_of(made_once(tmp_path_factory, "averaged", lambda folder: train(make_project(folder), *changes)))


def refusal(folders: Sequence[ModelDir], **choice: object) -> str:
    with pytest.raises(InputError) as caught:
        open_model(folders[0], EngineChoice(**choice), folders[1:])
    assert "\n" not in caught.value.message
    return caught.value.message


def found(translator: Translator, options: SearchOptions) -> tuple[list[str], list[float]]:
    candidates = [candidate for line in translator.translate(TEXT, options) for candidate in line]
    return [c.text for c in candidates], [number for c in candidates for number in (c.score, c.log_prob)]


def agree(one: Translator, other: Translator, options: SearchOptions) -> None:
    (texts, numbers), (expected_texts, expected_numbers) = found(one, options), found(other, options)
    assert texts == expected_texts
    assert numbers == pytest.approx(expected_numbers, abs=1e-5)


def mixed(models: Sequence[Transformer], src_tokens: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Return the mean distributions (1 + T, V) of some models along a translation, without caches."""
    with torch.no_grad():
        each = [model(src_tokens[None], torch.tensor([[SOS_ID, *ids]]))[0].double().softmax(-1) for model in models]
    return torch.stack(each).mean(dim=0)


# The mean -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
@pytest.mark.parametrize("copies", [2, 3])
def test_a_model_with_itself_changes_nothing(first: ModelDir, options: SearchOptions, copies: int) -> None:
    alone, together = open_model(first, EngineChoice("torch")), open_model(first, None, [first] * (copies - 1))
    assert together.engine == f"{copies} models together, torch float32 on cpu"
    assert len(set(found(alone.translator, options)[0])) > 2, "no variety"
    agree(together.translator, alone.translator, options)


def test_each_step_is_the_mean_of_all_models() -> None:
    """The models differ in shape and architecture; hypotheses are reordered and a sentence leaves."""
    models = [small_model(0), small_model(1, d_model=8, decoder_layers=1), small_model(2, positions="learned")]
    models.append(small_model(4, **DECODER_ONLY[0]))
    together, src_tokens = Ensemble(models), sources([6, 2, 4])
    generator = torch.Generator().manual_seed(2)
    rows, prefixes = torch.arange(3), torch.full((3, 1), SOS_ID)
    with torch.no_grad():
        state = together.start(src_tokens)
        for position in range(6):
            width = len(prefixes) // len(rows)
            log_probs = together.step(prefixes[:, -1].view(-1, width), state)
            expected = [
                mixed(models, src_tokens[rows[place // width]], prefix[1:].tolist())[-1]
                for place, prefix in enumerate(prefixes)
            ]
            close(log_probs.exp(), torch.stack(expected).float())
            kept = torch.tensor([0, 2]) if position == 2 else torch.arange(len(rows))
            origins = torch.randint(width, (len(kept), 2), generator=generator)
            state.select(kept if position == 2 else None, origins)
            moves = (origins + kept[:, None] * width).flatten()
            new = torch.randint(4, 12, (len(moves), 1), generator=generator)
            rows, prefixes = rows[kept], torch.cat([prefixes[moves], new], dim=1)


@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_hypotheses_have_the_mean_probability(options: SearchOptions) -> None:
    """Scores are logarithms of means, not means of logarithms."""
    models, src_tokens = [lively_model(0), lively_model(3)], sources([5, 2, 7])
    for row, hypotheses in enumerate(search(Ensemble(models), src_tokens, options)):
        alone = src_tokens[row][src_tokens[row] != 0]
        for h in hypotheses:
            steps = log_probs_of(mixed(models, alone, h.ids).log())
            expected = sum(steps[place, token].item() for place, token in enumerate([*h.ids, EOS_ID]))
            assert h.log_prob == pytest.approx(expected, abs=1e-4)


def test_the_shortest_positions_bound_all() -> None:
    longer, shorter = (small_model(positions="learned", max_length=length) for length in (20, 12))
    unlimited = small_model()
    for models in ([longer, shorter], [shorter, longer], [shorter, unlimited]):
        assert Ensemble(models).max_positions == 12
    assert Ensemble([unlimited, unlimited]).max_positions is None


def test_a_line_too_long_for_one_of_them_is_translated_in_parts(tmp_path: Path) -> None:
    longer, shorter = (
        whole_folder(tmp_path / str(length), *LIVELY, f"data.max_length={length}") for length in (40, 20)
    )
    lines = ["grass hill dog men house " * 3, *ENGLISH]
    expected = open_model(shorter, None, [longer]).translator.best(lines, GREEDY)
    assert open_model(longer, None, [shorter]).translator.best(lines, GREEDY) == expected


def test_a_prefix_too_long_for_one_of_them_is_refused(tmp_path: Path) -> None:
    unlimited, shorter = (
        whole_folder(tmp_path / kind, *LIVELY, f"model.positions={kind}", f"data.max_length={length}")
        for kind, length in (("sinusoidal", 40), ("learned", 12))
    )
    translator = open_model(unlimited, None, [shorter]).translator
    with pytest.raises(InputError, match="a translation may have 11"):
        translator.translate(["grass"], SearchOptions(), prefixes=["grass hill dog " * 5])


# Compatibility --------------------------------------------------------------------------------------------------------


def other_tokenizer(root: Path) -> ModelDir:
    """Return a model whose vocabulary has the same size but other pieces."""
    both = BpeTokenizer.train([line[::-1] for line in ENGLISH + GERMAN], tokenizers(True).source.vocab_size)
    assert both.vocab_size == tokenizers(True).source.vocab_size
    return whole_folder(root, *LIVELY, pair=TokenizerPair(both, both))


def lively(*changes: str) -> Callable[[Path], ModelDir]:
    return lambda root: whole_folder(root, *LIVELY, *changes)


VOCABULARY, DIRECTION = "its vocabulary is not that of", "translates from "


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (other_tokenizer, VOCABULARY),
        (lively("tokenizer.shared=false"), VOCABULARY),
        (lively("model.source_format=text </s>"), "its model.source_format or target_tag is not that of"),
        (lively("data.source_lang=nl"), DIRECTION),
        (lively("data.target_lang=fr"), DIRECTION),
    ],
)
def test_other_vocabularies_and_directions_are_refused(
    first: ModelDir, second: ModelDir, tmp_path: Path, make: Callable[[Path], ModelDir], message: str
) -> None:
    other = make(tmp_path / "other")
    assert refusal([first, second, other]).startswith(f"{other.root}: {message}")
    refusal([other, first])


def test_several_translate_into_the_languages_that_all_have(first: ModelDir, tmp_path: Path) -> None:
    code = configured(*LIVELY).data.target_lang[0]
    train = ", ".join(f"{{source: a, target: b, target_lang: {lang}}}" for lang in (code, "fr"))
    both = lively(f"data.target_lang=[{code}, fr]", f"data.train=[{train}]")(tmp_path / "both")
    for folders in ([both, first], [first, both]):
        assert open_model(folders[0], None, folders[1:]).settings.target_langs == (code,)


def test_other_search_settings_are_warned_of(
    first: ModelDir, second: ModelDir, tmp_path: Path, notices: list[str]
) -> None:
    open_model(first, None, [second])
    assert not notices
    other = lively("decoding.length_penalty=0.3")(tmp_path / "other")
    assert open_model(first, None, [other]).settings.search.length_penalty == 1
    assert notices == [f"{other.root}: its decoding settings differ from those of {first.root}, which apply"]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [(["--n-best", "2"], SearchOptions(SearchOptions().beam_size, 2)), (["--greedy"], SearchOptions(1))],
    ids=str,
)
def test_the_command_translates_with_all_that_are_named(
    first: ModelDir, second: ModelDir, arguments: list[str], options: SearchOptions
) -> None:
    names = ["--model", first.root, "--model", second.root, "--format", "jsonl", "-v"]
    done = run_cli("translate", *TEXT[:3], *names, *arguments)
    assert "2 models together, torch float32 on cpu" in done.stderr
    expected = open_model(first, None, [second]).translator.translate(TEXT[:3], options)
    for line, candidates in zip(done.stdout.splitlines(), expected, strict=True):
        shown = json.loads(line)["n_best"]
        assert [c["text"] for c in shown] == [c.text for c in distinct(candidates)]
        assert [c["log_prob"] for c in shown] == pytest.approx([c.log_prob for c in distinct(candidates)], abs=1e-4)


def test_eval_of_several_leaves_the_runs_scores_alone(averaged: RunDir) -> None:
    before = {path.name: path.read_bytes() for path in averaged.scores.iterdir()}
    names = ["--model", averaged.root, "--model", averaged.checkpoint(20)]
    done = run_cli("eval", *names, "--json", "--length-penalty", "0")
    assert json.loads(done.stdout)["sentences"] == 12
    assert {path.name: path.read_bytes() for path in averaged.scores.iterdir()} == before


def test_number_formats(first: ModelDir, second: ModelDir) -> None:
    """Those of torch are that of all models; the others are refused."""
    for number_type in ("int8", "int8_float32", "int16"):
        assert f"--compute-type {number_type}" in refusal([first, second], compute_type=number_type)
    opened = open_model(first, EngineChoice(compute_type="bfloat16"), [second])
    assert opened.engine == "2 models together, torch bfloat16 on cpu"
    assert len(opened.translator.best(TEXT, GREEDY)) == len(TEXT)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "runs/tiny", "--model", "runs/tiny"], "one model only"),
        (["--sample"], "samples"),
        (["--model", "runs/tiny/checkpoints/step-00000024"], "checkpoints"),
    ],
    ids=str,
)
def test_requests_beyond_the_fast_engine_are_refused(trained: Path, options: list[str], words: str) -> None:
    for command in (["translate", "a"], ["distill", "--input", "test.en", "--output", "never"]):
        done = mt(*command, *options, "--engine", "ctranslate2", cwd=trained, code=2)
        assert done.stderr.startswith("mt: --engine ctranslate2 ")
        assert words in done.stderr
        assert (done.stdout, len(done.stderr.splitlines())) == ("", 2)
    assert not (trained / "never").exists()


# Checkpoints ----------------------------------------------------------------------------------------------------------


def with_weights(run: RunDir, weights: Path) -> Translator:
    """Return the run's finished model with other weights."""
    loaded = load_model(run.model, CPU)
    set_parameters(loaded.model, load_file(weights))
    translator = open_model(run.model, EngineChoice("torch")).translator
    translator.engine.model = loaded.model
    return translator


def test_a_checkpoint_translates_with_its_moving_average(averaged: RunDir) -> None:
    root = averaged.checkpoint(24)
    opened = open_model(find_model(root, Path("none")))
    assert opened.engine == "torch float32 on cpu"
    agree(opened.translator, with_weights(averaged, root / "average.safetensors"), BEAM)
    last = found(with_weights(averaged, root / "model.safetensors"), BEAM)[1]
    assert found(opened.translator, BEAM)[1] != pytest.approx(last, abs=1e-2)


def test_a_checkpoint_without_a_moving_average_translates_with_its_weights(trained: Path) -> None:
    run = run_of(trained)
    for step in (16, 24):
        checkpoint = CheckpointDir(run.checkpoint(step))
        assert not checkpoint.average.exists()
        opened = open_model(find_model(checkpoint.root, Path("none")))
        agree(opened.translator, with_weights(run, checkpoint.weights), BEAM)
    finished = open_model(run.model, EngineChoice("torch")).translator
    agree(open_model(ModelDir(run.checkpoint(16))).translator, finished, BEAM)  # the best step, which became the model
    assert found(opened.translator, BEAM)[1] != pytest.approx(found(finished, BEAM)[1], abs=1e-3)


def test_checkpoints_translate_together_and_with_models(averaged: RunDir) -> None:
    folders = [ModelDir(averaged.checkpoint(20)), ModelDir(averaged.checkpoint(24)), averaged.model]
    opened = open_model(folders[0], None, folders[1:])
    assert opened.engine.startswith("3 models together")
    models = [load_model(folder, CPU).model for folder in folders]
    line = load_model(folders[2], CPU).tokenizers.source.encode("a b c")
    [[candidate]] = opened.translator.translate(["a b c"], GREEDY)
    src_tokens = torch.tensor([[SOS_ID, *line, EOS_ID]])
    [[expected]] = search(Ensemble(models), src_tokens, GREEDY)
    assert candidate.log_prob == pytest.approx(expected.log_prob, abs=1e-5)


def test_a_checkpoint_is_a_model_of_the_command(averaged: RunDir) -> None:
    """It may be named relative to any folder."""
    name = Path("checkpoints") / "step-00000024"
    [line] = mt("translate", "a b c", "--model", name, "--beam", "3", cwd=averaged.root).stdout.splitlines()
    options = SearchOptions(3, max_length=12)
    [expected] = open_model(ModelDir(averaged.checkpoint(24))).translator.best(["a b c"], options)
    assert line == expected


@pytest.mark.parametrize("name", ["average.safetensors", "model.safetensors", "MANIFEST.json"])
def test_a_damaged_checkpoint_is_refused(averaged: RunDir, tmp_path: Path, name: str) -> None:
    checkpoint = RunDir(Path(copytree(averaged.root, tmp_path / "run"))).checkpoint(24)
    hurt(checkpoint / name, "flip")
    assert checkpoint.name in refusal([ModelDir(checkpoint)])
    (checkpoint / name).unlink()
    assert name in refusal([ModelDir(checkpoint)])


def test_files_missing_from_a_checkpoints_manifest_are_not_used(
    trained: Path, averaged: RunDir, tmp_path: Path
) -> None:
    run = RunDir(Path(copytree(run_of(trained).root, tmp_path / "run")))
    checkpoint = CheckpointDir(run.checkpoint(24))
    copyfile(averaged.checkpoint(24) / "average.safetensors", checkpoint.average)
    with contextlib.suppress(InputError):
        opened = open_model(ModelDir(checkpoint.root))
        agree(opened.translator, with_weights(run, checkpoint.weights), BEAM)
