"""`start` with a status file that is no file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.bad.images import Image, make
from tests.bad.starts import start


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """A whole image, unpacked."""
    return make(tmp_path / "root")


def test_a_status_file_that_is_a_pipe_stays_one(image: Image, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "stderr"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    for path in (pipe, link):
        result = start(image, BAKER_STATUS=str(path))
        assert (result.code, result.line["baker"]) == (0, "compatible"), result.stderr
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert link.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could replace a device")
def test_a_status_file_that_is_a_device_stays_one(image: Image, tmp_path: Path) -> None:
    device = tmp_path / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    assert start(image, BAKER_STATUS=str(device)).code == 0
    assert stat.S_ISCHR(device.lstat().st_mode)
