"""Export jobs: the model to export, the text to compare translations of, and the README that all formats share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mt.bundle.checks import load_preprocessing
from mt.bundle.model_card import licence_header, origin_of
from mt.bundle.model_folder import write_text_files
from mt.config import Config
from mt.config.schema import ExportFormat
from mt.data.eval_texts import EvalText
from mt.data.tokenizer_kinds import TokenizerPair
from mt.model.embedding import Embedding
from mt.model.positions import LearnedPositions
from mt.model.transformer import Transformer
from mt.storage.manifest import read_manifest
from mt.storage.run_dir import ModelDir
from mt.text.languages import language_name

MT_FOLDER = "mt"  # subfolder with the files that `mt import` needs beside the weights

_SOFTWARE: dict[ExportFormat, str] = {
    "ctranslate2": "CTranslate2, with weights in {numbers}",
    "huggingface": "Hugging Face transformers",
    "onnx": "ONNX Runtime",
    "argos": "Argos Translate, with weights in {numbers}",
}
# Keys of `decoding` without a counterpart in other software
_ONLY_OURS = {
    "restore_case": "restores the usual case of text in capitals",
    "correct_spelling": "corrects spelling",
    "retry_loops": "repeats a search that ends in a loop",
    "keep_spans": "keeps URLs and code",
}


@dataclass(frozen=True)
class ExportJob:
    """A model folder or checkpoint to export."""

    folder: ModelDir
    config: Config
    model: Transformer  # on the CPU, in evaluation mode
    tokenizers: TokenizerPair
    texts: Sequence[EvalText]  # the validation set; may be empty
    number_format: str = "float32"  # of the weights, where the format has several
    max_loss: float = math.inf  # BLEU points that rounding the weights may cost on the texts

    @property
    def sources(self) -> list[str]:
        """The source sentences of the validation set."""
        return [source for text in self.texts for source in text.sources]

    @property
    def references(self) -> list[str]:
        """The reference translations of the validation set."""
        return [reference for text in self.texts for reference in text.references]

    @property
    def tags(self) -> dict[str, int]:
        """Ids of the tags that ask for the model's target languages; a pretrained tokenizer may have more tags."""
        ids = self.tokenizers.source.tags
        return {code: ids[code] for code in self.config.data.target_lang if code in ids}

    @property
    def example(self) -> str:
        """A short sentence for usage examples."""
        simple = (source for source in self.sources if 0 < len(source) < 80 and source.replace(" ", "").isalpha())
        return next(simple, "Hello")


def write_mt_folder(job: ExportJob, folder: Path) -> None:
    """Write what `mt import` needs beside the weights into an export: configuration, tokenizers and preprocessing."""
    write_text_files(ModelDir(folder / MT_FOLDER), job.config, job.tokenizers, load_preprocessing(job.folder))


def export_card(job: ExportJob, export_format: ExportFormat) -> str:
    """Describe the model in Markdown, with its licence in front matter; each format appends its usage."""
    config, shape, facts = job.config, job.config.model, read_manifest(job.folder.root)
    software = _SOFTWARE[export_format].format(numbers=job.number_format)
    data = config.data
    source, target = (", ".join(map(language_name, codes)) for codes in (data.source_lang, data.target_lang))
    sections = [
        f"{licence_header(facts)}# {config.name}: {source} to {target}",
        f"{origin_of(facts, 'A machine-translation Transformer trained with `mt`.')} Exported for {software}.\n"
        f"{shape.encoder_layers} encoder and {shape.decoder_layers} decoder layers, d_model {shape.d_model}, "
        f"d_ff {shape.d_ff}, {shape.n_heads} heads.",
    ]
    if len(data.source_lang) > 1 and "imported" not in facts:
        sections.append(f"It was trained on {', '.join(f'{s} to {t}' for s, t in data.pairs)}.")
    learned = {"restore_case": job.folder.casing.is_file(), "correct_spelling": job.folder.spelling.is_file()}
    if ours := [does for key, does in _ONLY_OURS.items() if getattr(config.decoding, key) and learned.get(key, True)]:
        sections.append(f"Other software searches with the model only. `mt` also {', '.join(ours)}.")
    if scores := facts.get("scores"):
        sections.append(f"Scores of the model before its export on its test set, by sacreBLEU:\n\n```\n{scores}\n```")
    return "\n\n".join(sections) + "\n"


def position_table(embedding: Embedding, length: int) -> Tensor:
    """Return the vectors that are added at positions (length, D) on the CPU; a learned table keeps its own length."""
    positions = embedding.positions
    if positions is None:
        return torch.zeros(length, embedding.tokens.embedding_dim)
    return positions.table.detach().cpu() if isinstance(positions, LearnedPositions) else positions.sinusoids(length)


def rotation_table(model: Transformer, length: int) -> Tensor | None:
    """Return the sines and cosines of rotary positions (length, K) on the CPU, if the model has these."""
    return None if model.rotary is None else model.rotary.sinusoids(length)
