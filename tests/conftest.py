"""Shared fixtures. Unit tests get a HOME, a state directory and no hub of their own, and never a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# These machines are shared and slow now and then: a deadline an example would test the machine.
settings.register_profile("baker", deadline=None, max_examples=int(os.environ.get("BAKER_EXAMPLES", "60")), derandomize=bool(os.environ.get("CI")))
settings.load_profile("baker")


pytest_plugins = ["tests.sim.fixtures"]


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh HOME and XDG state a test; secrets and cache variables of the developer's shell do not reach it."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    hub = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT")
    for name in (*hub, "SOURCE_DATE_EPOCH", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return home
