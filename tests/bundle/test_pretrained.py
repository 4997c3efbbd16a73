"""Pretrained starting points: copied weights and tokenizers, refusals, and resumes that do not copy again."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bundle_helpers import ENGLISH, GERMAN, configured, make, reseal
from command import Command, mt
from mt.bundle.model_folder import LoadedModel, build_model
from mt.bundle.pretrained import Pretrained, PretrainedModel, copy_weights
from mt.config import Config, parse_config
from mt.data.encode import read_counts
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.model.transformer import Transformer
from mt.pipeline import run as pipeline
from mt.pipeline.training import make_trainer
from mt.storage.manifest import sha256
from mt.storage.run_dir import ModelDir
from mt.training.trainer import Trainer
from resume_helpers import events, overrides, resumes, run_of, wait_for_step, weights
from training_helpers import prepare_run

VOCABULARIES = ("source_embedding.tokens.weight", "target_embedding.tokens.weight", "output.weight")
SHAPES = [[], ["tokenizer.shared=false"], ["model.tie_embeddings=false"], ["model.positions=learned", "model.norm=pre"]]


def starting_from(folder: ModelDir, config: Config) -> Pretrained:
    return Pretrained(config, PretrainedModel("given", folder, ""))


def fresh(config: Config, tokenizers: TokenizerPair) -> Transformer:
    torch.manual_seed(3)
    return build_model(config, tokenizers)


@pytest.mark.parametrize("changes", SHAPES, ids=lambda changes: " ".join(changes) or "default")
def test_with_the_same_tokenizer_all_weights_are_copied(tmp_path: Path, changes: list[str]) -> None:
    folder, pretrained, tokenizers = make(tmp_path, *changes)
    start = starting_from(folder, configured(*changes)).load_start()
    assert start.tokenizers.files() == tokenizers.files()
    model = fresh(configured(*changes), tokenizers)
    copy_weights(model, tokenizers, start)
    for (name, ours), theirs in zip(model.named_parameters(), pretrained.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("changes", SHAPES, ids=lambda changes: " ".join(changes) or "default")
def test_with_another_tokenizer_the_rows_of_shared_pieces_are_copied(
    tmp_path: Path, changes: list[str], notices: list[str]
) -> None:
    folder, pretrained, theirs = make(tmp_path, *changes)
    config = configured(*changes)
    # New pieces before, between and after the shared ones, so that rows move.
    ours = TokenizerPair.train([*ENGLISH, "0 quay by a jumping fox"], [*GERMAN, "Über Öl & Äpfel"], 340, theirs.shared)
    model, untouched = fresh(config, ours), dict(fresh(config, ours).named_parameters())
    copy_weights(model, ours, starting_from(folder, config).load_start())
    by_name, moved = dict(pretrained.named_parameters()), 0
    for name, parameter in model.named_parameters():
        if name not in VOCABULARIES:
            assert torch.equal(parameter, by_name[name]), name
            continue
        side = "source" if name.startswith("source") else "target"
        pieces, known = (getattr(pair, side).pieces for pair in (ours, theirs))
        new = 0
        for row, piece in enumerate(pieces):
            if piece in known:
                assert torch.equal(parameter[row], by_name[name][known.index(piece)]), (name, piece)
                moved += row != known.index(piece)
            else:
                other = getattr(theirs, side)
                parts = other.encode(getattr(ours, side).decode([row]))
                mean = by_name[name][parts].mean(dim=0) if parts else untouched[name][row]
                assert torch.allclose(parameter[row], mean), (name, piece)
                new += 1
        assert 5 < new < len(pieces) - 270
        if side == "target" or theirs.shared:
            assert f"{len(pieces) - new} of {len(pieces)} target pieces are known" in notices[-1]
    assert moved > 10


REFUSED = [
    (["model.d_ff=64"], ["model.d_ff"]),
    (["model.n_heads=4"], ["model.n_heads"]),  # its weights would fit, but not its attention
    (["model.norm=pre", "model.activation=gelu"], ["model.norm", "model.activation"]),
    (["model.decoder_layers=2", "model.bias=false"], ["model.decoder_layers", "model.bias"]),
    (["model.positions=learned"], ["model.positions"]),
    (["model.positions=rotary"], ["model.positions"]),
    (["model.tie_embeddings=false"], ["model.tie_embeddings"]),
    (["tokenizer.shared=false"], ["tokenizer.shared"]),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> ModelDir:
    return make(tmp_path_factory.mktemp("given"))[0]


@pytest.mark.parametrize(("changes", "keys"), REFUSED, ids=lambda part: " ".join(part))
def test_a_model_of_another_shape_is_refused_by_its_keys(saved: ModelDir, changes: list[str], keys: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        starting_from(saved, configured(*changes)).load_start()
    named = caught.value.message.partition(" differs from this configuration in ")[2].split(", ")
    assert sorted(named) == sorted(keys)
    assert caught.value.message.startswith(f"training.init_from: {saved.root}")


def test_learned_positions_need_the_same_number(tmp_path: Path) -> None:
    folder, _, _ = make(tmp_path, "model.positions=learned")
    for number in (10, 400):
        with pytest.raises(InputError, match=r"differs from this configuration in data\.max_length"):
            starting_from(folder, configured("model.positions=learned", f"data.max_length={number}")).load_start()


@pytest.mark.parametrize(
    "changes",
    [
        ["model.dropout=0.4", "model.attention_dropout=0.2", "model.activation_dropout=0.1"],
        ["model.embedding_dropout=0.3", "model.word_dropout=0.2", "model.init=normal", "data.max_length=40"],
        ["tokenizer.vocab_size=500", "tokenizer.bpe_dropout=0.1", "seed=7", "training.r_drop=1"],
    ],
    ids=" ".join,
)
def test_settings_without_weights_may_differ(saved: ModelDir, changes: list[str]) -> None:
    assert isinstance(starting_from(saved, configured(*changes)).load_start(), LoadedModel)


# From a run to a run ------------------------------------------------------------------------------------------------


@pytest.fixture
def given(trained: Path, tiny: Path) -> Path:
    """The tiny project, with a model trained on it in `given`."""
    return Path(shutil.copytree(run_of(trained).model.root, tiny / "given")).parent


def config_of(folder: Path, *changes: str) -> Config:
    changes = (f"data.root={folder}", f"training.init_from={folder / 'given'}", *changes)
    return parse_config((folder / "tiny.yaml").read_text(), "tiny.yaml", changes)


def trainer_of(folder: Path, *changes: str) -> tuple[Trainer, TokenizerPair]:
    """Make what `mt train` makes before its first step."""
    config = config_of(folder, *changes)
    run, pretrained = run_of(folder), Pretrained.find(config, folder / "runs", {})
    tokenizers = prepare_run(config, run, pretrained)
    return make_trainer(config, run, tokenizers, torch.device("cpu"), pretrained), tokenizers


def add_letters(folder: Path) -> None:
    """Change the text so that it gives another tokenizer than the given model's."""
    for name, extra in (("train.en", "k m k m\n"), ("train.xx", "0 z 0 z\n")):
        (folder / name).write_text(20 * extra + (folder / name).read_text())


def test_a_run_starts_from_the_model_and_its_tokenizer(given: Path) -> None:
    trainer_of(given)
    counts = run_of(given).encoded_counts
    before = sum(read_counts(counts).kept)
    shutil.rmtree(run_of(given).checkpoints, ignore_errors=True)
    # The text, the vocabulary size and the seed of this run make no difference to them.
    add_letters(given)
    trainer, tokenizers = trainer_of(given, "tokenizer.vocab_size=310", "seed=5", "training.ema_decay=0.9")
    assert sum(read_counts(counts).kept) == before + 1  # encoded again: twenty times the same pair
    stored = load_file(given / "given" / "model.safetensors")
    assert tokenizers.files()["tokenizer.json"] == (given / "given" / "tokenizer" / "tokenizer.json").read_text()
    for found in (dict(trainer.model.named_parameters()), trainer.average.weights):
        assert found.keys() == stored.keys()
        assert all(torch.equal(found[name], stored[name]) for name in stored)


def test_a_run_with_its_own_tokenizer_copies_the_known_rows(given: Path) -> None:
    add_letters(given)
    trainer, tokenizers = trainer_of(given, "training.init_tokenizer=false")
    stored = load_file(given / "given" / "model.safetensors")
    known = json.loads((given / "given" / "tokenizer" / "tokenizer.json").read_text())["model"]["vocab"]
    pieces = tokenizers.source.pieces
    assert {"▁k", "▁m", "▁0", "▁z"} & (set(pieces) - known.keys())
    for name, parameter in trainer.model.named_parameters():
        if name in VOCABULARIES:
            assert all(parameter[i].equal(stored[name][known[p]]) for i, p in enumerate(pieces) if p in known)
        else:
            assert torch.equal(parameter, stored[name])


def test_a_resume_loads_its_own_weights(given: Path) -> None:
    trainer, _ = trainer_of(given)
    for _ in range(2):
        trainer.step()
    trainer.save()
    ours = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    # The model is not read again: it could not be.
    shutil.rmtree(given / "given" / "tokenizer")
    resumed, _ = trainer_of(given)
    assert resumed.state.step == 2
    assert all(torch.equal(parameter, ours[name]) for name, parameter in resumed.model.named_parameters())


DAMAGE: dict[str, Callable[[ModelDir], object]] = {
    "weights": lambda model: model.weights.write_bytes(model.weights.read_bytes()[:-1]),
    "tokenizer": lambda model: (model.tokenizer / "tokenizer.json").unlink(),
    "manifest": lambda model: model.manifest.write_text("{}"),
    "no manifest": lambda model: model.manifest.unlink(),
    "no folder": lambda model: shutil.rmtree(model.root),
    "a file": lambda model: (shutil.rmtree(model.root), model.root.touch()),
    "empty": lambda model: (shutil.rmtree(model.root), model.root.mkdir()),
    "shape": lambda model: None,
}


def refusal(folder: Path, *changes: str) -> str:
    with pytest.raises(InputError) as caught:
        pipeline.run(config_of(folder, *changes), folder / "runs")
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_model_that_is_damaged_or_of_another_shape_is_refused(given: Path, damage: str) -> None:
    model = ModelDir(given / "given")
    changes = ["model.d_ff=64", "model.n_heads=4"] if damage == "shape" else []
    DAMAGE[damage](model)
    for kept in ("true", "false"):
        message = refusal(given, f"training.init_tokenizer={kept}", *changes)
        assert str(model.root) in message
        assert damage != "shape" or "model.n_heads, model.d_ff" in message
    assert not run_of(given).text.exists()  # before anything is prepared


def test_an_unfinished_run_is_refused(given: Path) -> None:
    (given / "runs" / "begun" / "data").mkdir(parents=True)
    assert "has not finished" in refusal(given, f"training.init_from={given / 'runs' / 'begun'}")


@pytest.mark.slow
def test_killed_and_resumed_ends_in_the_same_weights_and_another_model_is_refused(given: Path) -> None:
    changes = (
        *("training.max_steps=40", "training.save_every=5", "training.validate_every=20", "training.log_every=5"),
        *("training.init_from=given", "data.test=null"),
    )
    command = ["train", "--config", "tiny.yaml", *overrides(changes)]
    expected_folder = given / "uninterrupted"
    shutil.copytree(given, expected_folder)
    first = mt(*command, cwd=expected_folder)
    assert "starting from pretrained weights" in first.stderr
    killed = Command(*command, cwd=given)
    wait_for_step(given, 25, killed)
    killed.signal(signal.SIGKILL)
    assert killed.wait().code == -signal.SIGKILL
    (given / "given").rename(given / "away")  # it was needed at the beginning only
    resumed = mt(*command, cwd=given)
    assert "training.init_from: given is gone" in resumed.stderr
    (given / "away").rename(given / "given")
    assert resumes(given) == 1, "the kill missed the training; the test proves nothing"
    assert "starting from pretrained weights" not in resumed.stderr
    assert weights(given) == weights(expected_folder)
    assert weights(given) != sha256(given / "given" / "model.safetensors")

    before = events(given)
    (given / "given" / "README.md").write_text("# The same model, with speeds measured again\n")
    reseal(ModelDir(given / "given"))
    mt(*command, cwd=given)
    shutil.copy(expected_folder / "runs" / "tiny" / "model" / "model.safetensors", given / "given")
    reseal(ModelDir(given / "given"))
    again = mt(*command, cwd=given, code=2)
    assert "cannot resume: training.init_from: the content has changed" in again.stderr
    changed = overrides(["training.init_from=null", "training.init_tokenizer=false"])
    again = mt(*command, *changed, cwd=given, code=2)
    assert "training.init_from is now None" in again.stderr
    assert "training.init_tokenizer is now False" in again.stderr
    assert events(given) == before


@pytest.mark.parametrize(
    ("kind", "deep", "shallow", "layers", "moved"),
    [
        (
            "encoder_decoder",
            (3, 2),
            (2, 1),
            "{encoder: [0, 2], decoder: [1]}",
            {"encoder.1.": "encoder.2.", "decoder.0.": "decoder.1."},
        ),
        ("decoder_only", (0, 3), (0, 2), "{decoder: [1, 2]}", {"layers.0.": "layers.1.", "layers.1.": "layers.2."}),
    ],
)
def test_a_shallow_model_starts_with_the_layers_named(
    tmp_path: Path, kind: str, deep: tuple[int, int], shallow: tuple[int, int], layers: str, moved: dict[str, str]
) -> None:
    theirs, ours = (
        [f"model.architecture={kind}", f"model.encoder_layers={encoder}", f"model.decoder_layers={decoder}"]
        for encoder, decoder in (deep, shallow)
    )
    folder, start, tokenizers = make(tmp_path, *theirs)
    config = configured(*ours, "training.init_from=x", f"training.init_layers={layers}")
    model = fresh(config, tokenizers)
    starting_from(folder, config).initialize(model, tokenizers)
    pretrained = dict(start.named_parameters())
    for name, parameter in model.named_parameters():
        origin = next((name.replace(ours, other) for ours, other in moved.items() if name.startswith(ours)), name)
        assert torch.equal(parameter, pretrained[origin]), name


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("{encoder: [0]}", "encoder names 1 layers, model.encoder_layers is 2"),
        ("{encoder: [0, 3]}", "encoder: 3, but training.init_from has layers 0 to 2"),
        ("{decoder: [1]}", "differs from this configuration in model.encoder_layers"),
    ],
)
def test_layers_that_do_not_fit_are_refused(tmp_path: Path, layers: str, message: str) -> None:
    folder = make(tmp_path, "model.encoder_layers=3", "model.decoder_layers=2")[0]
    shallow = ["model.encoder_layers=2", "model.decoder_layers=1"]
    config = configured(*shallow, "training.init_from=x", f"training.init_layers={layers}")
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        starting_from(folder, config).load_start()


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_frozen_parts_keep_their_weights(tiny: Path, given: Path, optimizer: str) -> None:
    changes = [f"training.optimizer={optimizer}", "training.freeze=[encoder, source_embedding]"]
    trainer, _ = trainer_of(given, *changes)
    before = {name: parameter.clone() for name, parameter in trainer.model.named_parameters()}
    trainer.step()
    trainer.step()
    changed = {name for name, parameter in trainer.model.named_parameters() if not torch.equal(parameter, before[name])}
    frozen = {name for name in before if name.startswith(("encoder", "source_embedding"))}
    assert frozen
    assert changed == before.keys() - frozen
    trainer.save()
    resumed, _ = trainer_of(given, *changes)
    for trained in (trainer, resumed):
        trained.step()
    for name, parameter in trainer.model.named_parameters():
        assert torch.equal(parameter, dict(resumed.model.named_parameters())[name]), name


def test_the_start_is_scored_before_the_first_step(given: Path, notices: list[str]) -> None:
    trainer, _ = trainer_of(given)
    trainer.run()
    scored = [event for event in events(given) if event["event"] == "validation"]
    assert scored[0]["step"] == 0
    assert any(notice.startswith("step 0: validation loss") for notice in notices)
    assert trainer.state.best_step > 0


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("[encoder, decoder, source_embedding]", "nothing is left to train"),  # the output is tied to the embedding
        ("[decoder, target_embedding]", "nothing is left to train"),  # nor is it here
    ],
)
def test_parts_that_cannot_be_frozen_are_refused(given: Path, parts: str, message: str) -> None:
    changes = [f"training.freeze={parts}", "training.init_from=null"]
    if "encoder" not in parts:
        changes += ["model.architecture=decoder_only", "model.encoder_layers=0"]
    with pytest.raises(InputError, match=message):
        trainer_of(given, *changes)
