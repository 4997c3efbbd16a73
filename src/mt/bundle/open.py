"""A model folder, opened and ready to translate."""

from dataclasses import dataclass

from mt.bundle.model_dir import load_model
from mt.config import Config
from mt.decoding.torch_engine import TorchEngine
from mt.decoding.translator import Translator
from mt.devices import choose_device
from mt.run_dir import ModelDir


@dataclass(frozen=True)
class OpenedModel:
    """A translator and the configuration its model was trained with."""

    config: Config
    translator: Translator


def open_model(folder: ModelDir, device: str = "auto") -> OpenedModel:
    """Reads a model folder.

    Raises:
        InputError: it is not whole, or this machine lacks the device.
    """
    loaded = load_model(folder, choose_device(device, "--device"))
    config = loaded.config
    engine = TorchEngine(loaded.model, config.decoding.batch_tokens)
    return OpenedModel(config, Translator(engine, loaded.tokenizers, config.data.max_length, config.data.target_lang))
