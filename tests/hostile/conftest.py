"""One simulated runtime and one small bake, shared by the hostile tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.bakes import LOADS, Site
from tests.sim.install import make_runtime


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The simulated runtime's interpreter."""
    directory = tmp_path_factory.mktemp("runtime")
    directory.chmod(0o755)
    return make_runtime(directory / "rt")


@pytest.fixture
def site(tmp_path: Path, python: str) -> Site:
    """A place of its own for one build."""
    return Site(tmp_path / "site", python, LOADS)


@pytest.fixture(scope="session")
def baked(tmp_path_factory: pytest.TempPathFactory, python: str) -> Site:
    """A finished, unproven bake. Copy what you change."""
    place = Site(tmp_path_factory.mktemp("baked") / "site", python, LOADS)
    done = place.build("--no-prove")
    assert done.code == 0, done.text
    return place
