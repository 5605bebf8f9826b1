"""Triton's truth table with the real Triton of the runtime: what start says is what Triton then does, row by row."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.vgpu.quick import table


@pytest.fixture(scope="module")
def ground(runtime_python: Path, tmp_path_factory: pytest.TempPathFactory) -> table.Ground:
    scratch = tmp_path_factory.mktemp("table")
    for place in (scratch, scratch.parent, scratch.parent.parent):
        place.chmod(0o755)  # row uid: another user reads the image
    return table.bake(str(runtime_python), scratch)


@pytest.mark.parametrize("row", table.ROWS, ids=lambda row: row.name)
def test_start_says_what_triton_does(row: table.Row, ground: table.Ground) -> None:
    if row.uid and not all(place.stat().st_mode & 0o001 for place in Path(ground.python).resolve().parents):
        pytest.skip("another user cannot reach this interpreter")
    if (row.uid or row.read_only) and os.geteuid() != 0:
        pytest.skip("needs root")
    judged = table.judge(row, table.play(ground, row, forced=False), table.play(ground, row, forced=True))
    assert judged["agrees"], judged


def test_the_cubins_tell_their_toolkit(ground: table.Ground) -> None:  # case O-19: no package says it in an environment with a CPU build of torch
    (kind,) = (kind for kind in ground.opened.manifest.sets[0].kinds if kind.name == "triton")
    assert kind.factors["toolkits"] == [13]
    assert [row.value for row in kind.rows if row.fact == "cuda.driver_api"] == ["13.0"]
    assert {file.path.rpartition(".")[2] for file in kind.files} == {"cubin", "json", "source", "so"}
