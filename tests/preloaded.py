"""What the server process of `command` imports, so that its forks, the commands of the tests, need not.

Most of these commands take less time than their imports. What a command imports in a process of its own is tested in
cli/test_startup.py.
"""

import gc
import importlib
import os
import pkgutil
from pathlib import Path

import ctranslate2.specs  # noqa: F401
import datasets  # noqa: F401
import matplotlib.figure  # noqa: F401
import sacrebleu.significance  # noqa: F401
import torch

import mt
from mt.extras.doctor import line_languages, word_hashes

for module in pkgutil.walk_packages(mt.__path__, "mt."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
# Tables that each command would compute again
word_hashes._kinds()
line_languages.scorer_for()
if not torch.cuda.is_available():  # torch would write down a traceback for it, each time that a generator is seeded
    torch.cuda.manual_seed_all = lambda seed: None

# The server got the way to this file from there, and commands must not.
others = [path for path in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if path != str(Path(__file__).parent)]
os.environ |= {"PYTHONPATH": os.pathsep.join(others)} if others else {}

# A fork's garbage collector passes over all these objects, and so their memory remains shared.
gc.collect()
gc.freeze()
