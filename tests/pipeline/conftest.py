"""Shared fixtures of the pipeline tests: one simulated runtime and one finished bake a test run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.bakes import Done, Site
from tests.sim.install import make_runtime

Sites = Callable[..., Site]


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The simulated runtime's interpreter."""
    directory = tmp_path_factory.mktemp("runtime")
    directory.chmod(0o755)
    return make_runtime(directory / "rt")


@pytest.fixture
def site(tmp_path: Path, python: str) -> Sites:
    """Makes a site in the test's own directory: `site(script)`."""
    return lambda script=None, name="site", runtime=python: Site(tmp_path / name, runtime, script)


@pytest.fixture(scope="session")
def baked(tmp_path_factory: pytest.TempPathFactory, python: str) -> tuple[Site, Done]:
    """The happy path as a user runs it: AOT falls by its evidence, Inductor's cache proves. Read it, do not change it."""
    place = Site(tmp_path_factory.mktemp("baked"), python)
    return place, place.child("--json", env={"XDG_STATE_HOME": str(place.directory / "state")})
