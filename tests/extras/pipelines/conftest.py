"""A folder for pipelines that are only checked."""

from pathlib import Path

import pytest

from pipeline_helpers import make_pipeline


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pipeline(tmp_path_factory.mktemp("checked"))
