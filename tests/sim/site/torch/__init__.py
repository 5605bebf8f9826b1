"""Simulated torch: maps its library, as a real import does, so that /proc/PID/maps names it."""

import mmap
from pathlib import Path

from vllm import version

__version__ = version.TORCH

with (Path(__file__).parent / "lib" / "libtorch_cpu.so").open("rb") as _file:
    _library = mmap.mmap(_file.fileno(), 0, prot=mmap.PROT_READ)
