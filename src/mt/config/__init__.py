"""The configuration of a run: one YAML file, one class per section, all problems reported at once.

Start reading at `load_config`: `yaml_tree` parses the file into a plain tree, `problems.validate` turns the tree into a
`Config`, whose sections are in `schema`, `data`, `sources`, `augmentation`, `model`, `training` and `decoding`.
"""

from mt.config.augmentation import AugmentationConfig
from mt.config.data import DataConfig
from mt.config.decoding import DecodingConfig, EvaluationConfig
from mt.config.loading import dump_config, load_config, parse_config
from mt.config.model import ModelConfig, TokenizerConfig
from mt.config.schema import Config
from mt.config.sources import (
    Builtin,
    FromTrain,
    HubDataset,
    OpusCorpus,
    PairFiles,
    SacrebleuSet,
    Source,
    TableFile,
    TextFolder,
    is_synthetic,
)
from mt.config.training import InitLayers, TrainingConfig

__all__ = [
    "AugmentationConfig",
    "Builtin",
    "Config",
    "DataConfig",
    "DecodingConfig",
    "EvaluationConfig",
    "FromTrain",
    "HubDataset",
    "InitLayers",
    "ModelConfig",
    "OpusCorpus",
    "PairFiles",
    "SacrebleuSet",
    "Source",
    "TableFile",
    "TextFolder",
    "TokenizerConfig",
    "TrainingConfig",
    "dump_config",
    "is_synthetic",
    "load_config",
    "parse_config",
]
