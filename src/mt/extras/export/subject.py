"""What is exported: a model together with the text that it is measured by."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mt.bundle.load_translator import read_config
from mt.bundle.model_folder import load_model
from mt.config import Config
from mt.config.exports import EXPORT_FORMATS, ExportFormat, export_rules
from mt.data.eval_texts import EvalText
from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError
from mt.model.transformer import Transformer
from mt.storage.run_dir import ModelDir


@dataclass(frozen=True)
class Subject:
    """A model to export.

    Attributes:
        folder: where it comes from.
        config: what it was trained with.
        model: on the CPU, in evaluation mode.
        tokenizers: of both languages.
        texts: a validation set; empty where there is none.
    """

    folder: ModelDir
    config: Config
    model: Transformer
    tokenizers: TokenizerPair
    texts: Sequence[EvalText]

    @property
    def sources(self) -> list[str]:
        """The validation set's sentences to translate."""
        return [source for text in self.texts for source in text.sources]

    @property
    def references(self) -> list[str]:
        """What they should become."""
        return [reference for text in self.texts for reference in text.references]

    @property
    def tags(self) -> dict[str, int]:
        """The tags that ask for the model's languages; a tokenizer that was taken over may have those of others."""
        known = self.tokenizers.source.tags
        return {code: known[code] for code in self.config.data.target_lang if code in known}

    @property
    def example(self) -> str:
        """A sentence to show how to translate."""
        simple = (source for source in self.sources if 0 < len(source) < 80 and source.replace(" ", "").isalpha())
        return next(simple, "Hello")


def export_format(name: str) -> ExportFormat:
    """A format by its name.

    Raises:
        InputError: there is none of that name.
    """
    for known in EXPORT_FORMATS:
        if name == known:
            return known
    raise InputError(f"'{name}' is no format to export to", f"take one of {', '.join(EXPORT_FORMATS)}")


def require_exportable(config: Config, wanted: ExportFormat) -> None:
    """Refuses a model that a format has no place for.

    Raises:
        InputError: the message names the key of its configuration.
    """
    for rule in export_rules(config, wanted):
        if rule.broken:
            raise InputError(f"{rule.keys[0]}: {rule.reason}")


def load_subject(folder: ModelDir, wanted: ExportFormat, texts: Sequence[EvalText]) -> Subject:
    """Reads a model folder or checkpoint, after a look at whether it can be exported.

    Raises:
        InputError: it cannot, or it is not whole.
    """
    require_exportable(read_config(folder), wanted)
    loaded = load_model(folder, torch.device("cpu"))
    assert isinstance(loaded.model, Transformer), "the rules let no other pass"
    return Subject(folder, loaded.config, loaded.model, loaded.tokenizers, texts)
