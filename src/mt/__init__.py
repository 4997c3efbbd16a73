"""From raw parallel text to a translator: the Python API behind the `mt` command.

Importing this package imports no library: a name is loaded when it is first used.

>>> import mt
>>> sorted(name for name in mt.__all__ if name[0].islower())[:4]
['check_corpus', 'clean_corpus', 'evaluate', 'evaluate_robustness']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mt.errors import DivergedError, InputError, MachineError, MtError, StoppedError

if TYPE_CHECKING:
    from mt.api.conversion import export, import_model
    from mt.api.corpora import check_corpus, clean_corpus, score_corpus
    from mt.api.evaluation import Evaluation, ScoreTable, evaluate, evaluate_robustness
    from mt.api.loading import load
    from mt.api.pipelines import run_pipeline
    from mt.api.runs import Run, list_runs
    from mt.api.search import Translation
    from mt.api.synthesis import synthesize
    from mt.api.training import train
    from mt.api.translation import Translator

__version__ = "0.1.0"

__all__ = [
    "DivergedError",
    "Evaluation",
    "InputError",
    "MachineError",
    "MtError",
    "Run",
    "ScoreTable",
    "StoppedError",
    "Translation",
    "Translator",
    "check_corpus",
    "clean_corpus",
    "evaluate",
    "evaluate_robustness",
    "export",
    "import_model",
    "list_runs",
    "load",
    "run_pipeline",
    "score_corpus",
    "synthesize",
    "train",
]

_MODULES = {
    "conversion": ("export", "import_model"),
    "corpora": ("check_corpus", "clean_corpus", "score_corpus"),
    "evaluation": ("Evaluation", "ScoreTable", "evaluate", "evaluate_robustness"),
    "loading": ("load",),
    "pipelines": ("run_pipeline",),
    "runs": ("Run", "list_runs"),
    "search": ("Translation",),
    "synthesis": ("synthesize",),
    "training": ("train",),
    "translation": ("Translator",),
}


if not TYPE_CHECKING:  # it would hide misspelt names from type checkers

    def __getattr__(name: str) -> Any:
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f"mt.api.{module}"), name)
        raise AttributeError(f"module 'mt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
