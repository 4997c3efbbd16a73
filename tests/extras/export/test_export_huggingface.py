"""Export to transformers: it loads, computes the same logits, and searches the same way."""

import json
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import pytest
import torch
import transformers
import yaml
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from command import mt
from conftest import into
from engine_helpers import ENGLISH, configured, endless_model, sentences
from export_helpers import padded, random_job, readme_program, run_folder, run_readme, search
from mt.bundle.load_translator import open_model
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.decoding.engine import SearchOptions
from mt.decoding.settings import TranslationSettings
from mt.errors import MtError
from mt.extras.export.common import ExportJob
from mt.extras.export.equivalence import require_equal
from mt.extras.export.huggingface import _with_header, write_huggingface
from mt.extras.export.huggingface_weights import target_shift

SHAPES = [
    [f"model.norm={norm}", f"model.positions={positions}", f"model.tie_embeddings={tied}", f"tokenizer.shared={shared}"]
    for norm, positions, tied, shared in product(
        ("pre", "post"), ("sinusoidal", "learned"), ("true", "false"), ("true", "false")
    )
]
# Independent of the other choices, so in turn.
OTHERS = [
    ["model.activation=gelu", "model.bias=true"],
    ["model.activation=relu", "model.bias=false"],
    ["model.activation=relu", "model.attention_bias=false"],
]
CLASSES = {
    ("pre", "sinusoidal"): "PegasusForConditionalGeneration",
    ("pre", "learned"): "BlenderbotForConditionalGeneration",
    ("post", "sinusoidal"): "MarianMTModel",
    ("post", "learned"): "MarianMTModel",
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


class Loaded:
    """An export as a user of transformers loads it."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def translate(self, *texts: str, **options: int) -> list[str]:
        batch = self.tokenizer(list(texts), return_tensors="pt", padding=True)
        return self.tokenizer.batch_decode(self.model.generate(**batch, **options), skip_special_tokens=True)


def exported(folder: Path, job: ExportJob) -> Loaded:
    folder.mkdir(exist_ok=True)
    write_huggingface(job, folder, "# A model\n")
    return Loaded(folder)


def logits_differ(loaded: Loaded, job: ExportJob) -> float:
    """Return the largest difference, with sources of different lengths."""
    pair, shift = job.tokenizers, target_shift(job.model)
    sources = padded(sentences([7, 1, 12], pair.source.vocab_size))
    targets = padded(sentences([9, 9, 9], pair.target.vocab_size, seed=1))
    with torch.no_grad():
        expected = job.model(sources, targets)
        mask = (sources != PAD_ID).long()
        found = loaded.model(input_ids=sources, attention_mask=mask, decoder_input_ids=targets + shift).logits
    assert found.shape[-1] == shift + pair.target.vocab_size
    return float((found[..., shift:] - expected).abs().max())


@pytest.mark.parametrize(
    ("shape", "others"),
    [(shape, OTHERS[number % 3]) for number, shape in enumerate(SHAPES)],
    ids=lambda changes: "-".join(change.split("=")[1] for change in changes),
)
def test_every_shape(tmp_path: Path, shape: list[str], others: list[str]) -> None:
    job = random_job(*shape, *others, "model.encoder_layers=2")
    loaded = exported(tmp_path, job)
    config = job.config.model
    assert type(loaded.model).__name__ == CLASSES[config.norm, config.positions]
    assert logits_differ(loaded, job) < 1e-4
    for beam in (5, 1):
        assert loaded.translate(*ENGLISH, num_beams=beam) == search(job, SearchOptions(beam, max_length=12))


def test_deep_models_keep_their_layers_in_order_and_learned_positions_end_where_they_end(tmp_path: Path) -> None:
    layers = ("model.encoder_layers=4", "model.decoder_layers=3", "model.norm=pre")
    job = random_job(*layers, "model.positions=learned", "decoding.max_length=300")
    loaded = exported(tmp_path, job)
    assert logits_differ(loaded, job) < 1e-4
    assert loaded.model.generation_config.max_length == 41


def test_positions_reach_as_far_as_a_translation_can(tmp_path: Path) -> None:
    changes = ["model.norm=post", "model.tie_embeddings=false", "decoding.max_length=70"]
    job = random_job(*changes)
    job = replace(job, model=endless_model(job.config))
    loaded = exported(tmp_path, job)
    batch = loaded.tokenizer(ENGLISH, return_tensors="pt", padding=True)
    found = loaded.model.generate(**batch, num_beams=2)
    assert found.shape[1] == 72
    assert (found[:, -1] == target_shift(job.model) + EOS_ID).all()
    sources, targets = padded(sentences([38], 300)), padded(sentences([69], 300, seed=1))
    with torch.no_grad():
        expected = job.model(sources, targets)
        found = loaded.model(input_ids=sources, decoder_input_ids=targets + target_shift(job.model)).logits
    assert torch.allclose(found[..., target_shift(job.model) :], expected, atol=1e-4)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_translation_of_the_maximum_length_is_the_same(tmp_path: Path, norm: str) -> None:
    job = random_job(f"model.norm={norm}", "decoding.max_length=3", "decoding.beam_size=1")
    words = " ".join(ENGLISH).split()
    texts = [" ".join(words[i:j]) for i, j in combinations(range(len(words)), 2)]
    expected = search(job, TranslationSettings.of(job.config).search, texts)
    assert exported(tmp_path, job).translate(*texts) == expected


@pytest.mark.parametrize(("penalty", "no_repeat"), [("0.0", 0), ("1.7", 0), ("1.7", 2)])
def test_the_models_own_search_is_the_default(tmp_path: Path, penalty: str, no_repeat: int) -> None:
    changes = ["beam_size=3", "min_length=6", f"length_penalty={penalty}", f"no_repeat_ngram_size={no_repeat}"]
    job = random_job(*(f"decoding.{change}" for change in changes))
    options = TranslationSettings.of(job.config).search
    expected = search(job, options)
    assert expected != search(job, replace(options, min_length=0))
    assert not no_repeat or expected != search(job, replace(options, no_repeat_ngram_size=0))
    assert exported(tmp_path, job).translate(*ENGLISH) == expected


def test_batches_do_not_change_translations(tmp_path: Path) -> None:
    loaded = exported(tmp_path, random_job("tokenizer.shared=false", "model.norm=pre"))
    texts = [*ENGLISH, "A dog.", "Two men are talking on the hill."]
    assert loaded.translate(*texts) == [loaded.translate(text)[0] for text in texts]


@pytest.mark.parametrize("shared", ["true", "false"])
def test_the_tokenizer(tmp_path: Path, shared: str) -> None:
    job = random_job(f"tokenizer.shared={shared}")
    loaded, pair = exported(tmp_path, job), job.tokenizers
    literal = "a </s> and <pad> and <s> and <0x41> ▁ \ue000 \ue000t"
    for text in (*ENGLISH, literal, "  two  spaces\t", "e\u0301 ☃ 日本", ""):
        assert loaded.tokenizer(text)["input_ids"] == [SOS_ID, *pair.source.encode(text), EOS_ID]
        ids, shift = pair.target.encode(text), target_shift(job.model)
        found = [shift + i for i in (SOS_ID, *ids, EOS_ID)] + [PAD_ID]
        assert loaded.tokenizer.decode(found, skip_special_tokens=True) == pair.target.decode(ids)
    assert loaded.tokenizer.model_max_length == job.config.data.max_length


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_it_can_be_saved_again(tmp_path: Path, norm: str) -> None:
    """As after fine-tuning; the class recomputes its sinusoids."""
    job = random_job(f"model.norm={norm}", "tokenizer.shared=false")
    exported(tmp_path / "first", job).model.save_pretrained(tmp_path / "second")
    AutoTokenizer.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    again = Loaded(tmp_path / "second")
    assert logits_differ(again, job) < 1e-4
    assert again.translate(*ENGLISH) == search(job, SearchOptions(5, max_length=12))


def test_the_readme_warns_that_saving_loses_learned_positions(tmp_path: Path) -> None:
    for norm in ("pre", "post"):
        exported(tmp_path / norm, random_job(f"model.norm={norm}", "model.positions=learned"))
        assert ("save_pretrained" in (tmp_path / norm / "README.md").read_text()) == (norm == "post")


def test_differences_are_errors() -> None:
    here = torch.zeros(2, 3, 4)
    assert "0.0e+00" in require_equal("X", here, here)
    with pytest.raises(MtError, match=r"X does not agree with the model: logits differ by 0\.01"):
        require_equal("X", here + 0.01, here)
    with pytest.raises(MtError, match="in shape"):
        require_equal("X", here[:1], here)


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_and_its_readme(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", "tokenizer.shared=false")
    done = mt("export", "huggingface", "--model", "run", "--output", "out", cwd=tmp_path)
    assert "logits differ by at most" in done.stdout
    assert done.stdout.endswith("huggingface: out\n")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("MANIFEST.json", "README.md", "config.json", "generation_config.json"),
        *("model.safetensors", "tokenizer.json", "tokenizer_config.json", "mt"),
    }
    card = (tmp_path / "out" / "README.md").read_text()
    header = yaml.safe_load(card.split("---\n")[1])
    assert (header["language"], header["pipeline_tag"]) == (["en", "de"], "translation")
    program = readme_program(tmp_path / "out").replace("THIS_FOLDER", str(tmp_path / "out"))
    text = program.split('tokenizer(["')[1].split('"]')[0]
    opened = open_model(run.model)
    assert run_readme(tmp_path / "out", program)[0] == f"{opened.translator.best([text], opened.settings.search)}\n"


def test_norwegian_is_not_a_boolean() -> None:
    header = _with_header(configured("data.source_lang='no'"), "# A model\n")
    assert yaml.safe_load(header.split("---\n")[1])["language"] == ["no", "de"]


def test_several_languages_are_asked_for_in_the_text(two_languages: Path, tmp_path: Path) -> None:
    mt("export", "huggingface", "--output", tmp_path / "out", cwd=two_languages)
    loaded = Loaded(tmp_path / "out")
    for language in ("xx", "yy"):
        found = loaded.translate(*(f"<2{language}> {text}" for text in ("a b c", "d e")))
        assert found == [into(language, text) for text in ("a b c", "d e")]
    assert "<2xx>" in readme_program(tmp_path / "out")


@pytest.mark.slow
def test_a_checkpoint_can_be_exported(trained: Path, tmp_path: Path) -> None:
    checkpoint = trained / "runs" / "tiny" / "checkpoints" / "step-00000024"
    mt("export", "huggingface", "--model", checkpoint, "--output", tmp_path / "out", cwd=tmp_path)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "pegasus"
