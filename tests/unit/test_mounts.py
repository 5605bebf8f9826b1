"""What is said of the file systems below the caches: noexec, network, and where each directory lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baker.inside import mountinfo, mounts
from baker.inside.mountinfo import Mount

LINES = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:26 / /opt/ba\\040ker rw,noexec,nosuid - tmpfs tmpfs rw
31 30 0:27 / /opt/ba\\040ker/live rw,relatime - nfs4 host:/share rw,vers=4.2
"""


def test_the_kernels_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(LINES)
    table = mountinfo.table(str(tmp_path / "mountinfo"))
    assert table["/opt/ba ker"] == Mount("/opt/ba ker", "tmpfs", ["rw", "noexec", "nosuid"])
    assert table["/opt/ba ker/live"].type == "nfs4"
    assert mountinfo.of("/opt/ba ker/sets/cpu", table) == table["/opt/ba ker"]
    assert mountinfo.of("/usr", table) == table["/"]
    assert mountinfo.of("a\0b", table) is None
    assert mountinfo.of("/usr", {}) is None
    assert mountinfo.table(str(tmp_path / "absent")) == {}


@given(st.text(max_size=200))
def test_no_table_makes_the_reader_crash(text: str) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text.encode("utf-8", "replace").decode())
        file.flush()
        assert isinstance(mountinfo.table(file.name), dict)


def test_live_on_a_network_file_system_is_said(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    here = {str(tmp_path): Mount(str(tmp_path), "nfs4", ["rw"])}
    (finding,) = mounts.network(str(tmp_path / "live"), here)
    assert (finding.code, finding.severity, finding.found) == ("mount-network", "soft", "nfs4")
    assert mounts.network(str(tmp_path / "live"), {"/": Mount("/", "ext4", ["rw"])}) == []


def test_facts_name_the_file_system_of_each_directory(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    found = mounts.facts(str(tmp_path), {"TMPDIR": str(tmp_path)})
    assert set(found) == {"fs.root", "fs.live", "fs.tmp"}
    assert all("rw" in text for text in found.values())


@pytest.mark.parametrize("path", ["", "relative", "/nowhere/at/all"])
def test_a_path_that_is_not_there_is_nobodys(path: str) -> None:
    assert mounts.network(path, {}) == []
