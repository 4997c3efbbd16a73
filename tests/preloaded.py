"""What the server process of `command` imports, so that its forks, the commands of the tests, need not.

Most of these commands take less time than their imports. What a command imports in a process of its own is tested in
cli/test_startup.py.
"""

import importlib
import os
import pkgutil
from pathlib import Path

import ctranslate2.specs  # noqa: F401
import datasets  # noqa: F401
import matplotlib.figure  # noqa: F401
import sacrebleu.significance  # noqa: F401

import mt
from mt.text import language_id

for module in pkgutil.walk_packages(mt.__path__, "mt."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
language_id._all_languages()

# The server got the way to this file from there, and commands must not.
others = [path for path in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if path != str(Path(__file__).parent)]
os.environ |= {"PYTHONPATH": os.pathsep.join(others)} if others else {}
