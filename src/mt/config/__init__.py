"""The configuration of a run: one YAML file, one class per section, all problems reported at once.

Start reading at `load_config`: `yaml_tree` parses the file into a plain tree, `problems.validate` turns the tree into a
`Config`, whose sections are in `schema`, `data`, `sources`, `augmentation`, `model`, `training` and `decoding`.
"""

from mt.config.data import DataConfig as DataConfig
from mt.config.decoding import EvaluationConfig as EvaluationConfig
from mt.config.loading import dump_config as dump_config
from mt.config.loading import load_config as load_config
from mt.config.loading import parse_config as parse_config
from mt.config.model import ModelConfig as ModelConfig
from mt.config.model import TokenizerConfig as TokenizerConfig
from mt.config.schema import Config as Config
from mt.config.sources import Builtin as Builtin
from mt.config.sources import FromTrain as FromTrain
from mt.config.sources import HubDataset as HubDataset
from mt.config.sources import OpusCorpus as OpusCorpus
from mt.config.sources import PairFiles as PairFiles
from mt.config.sources import SacrebleuSet as SacrebleuSet
from mt.config.sources import Source as Source
from mt.config.sources import TableFile as TableFile
from mt.config.sources import TextFolder as TextFolder
from mt.config.sources import is_synthetic as is_synthetic
from mt.config.training import InitLayers as InitLayers
from mt.config.training import TrainingConfig as TrainingConfig
