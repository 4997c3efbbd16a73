"""The configuration of a run: one YAML file, one class per section, every problem reported at once.

`load_config` is where to start reading: `yaml_source` makes a plain tree of the file, `problems.validate` a `Config`
of the tree, with the classes in `schema`, `data`, `sources`, `training` and `decoding`; `exports` says what a model
cannot become.
"""

from mt.config.data import DataConfig
from mt.config.decoding import DecodingConfig, EvaluationConfig
from mt.config.loading import dump_config, load_config, parse_config
from mt.config.model import ModelConfig, TokenizerConfig
from mt.config.schema import Config
from mt.config.sources import Builtin, FromTrain, HubDataset, PairFiles, Source, TableFile, is_synthetic, name_of
from mt.config.training import TrainingConfig

__all__ = [
    "Builtin",
    "Config",
    "DataConfig",
    "DecodingConfig",
    "EvaluationConfig",
    "FromTrain",
    "HubDataset",
    "ModelConfig",
    "PairFiles",
    "Source",
    "TableFile",
    "TokenizerConfig",
    "TrainingConfig",
    "dump_config",
    "is_synthetic",
    "load_config",
    "name_of",
    "parse_config",
]
