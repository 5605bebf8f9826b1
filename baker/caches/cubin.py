"""What a cubin's ELF header says, without any tool: its compute capability. The forms are those of ptxas 12.8 to 13.4."""

from __future__ import annotations

import re
import struct
from pathlib import Path

EM_CUDA = 190  # e_machine of NVIDIA device code
HEADER = 64  # bytes of an ELF64 header


class NotCubinError(ValueError):
    """The bytes are no CUDA device code; the text says what they are."""


def capability(header: bytes) -> int:
    """The SM number (90 for sm_90 and sm_90a) from the first 64 bytes of a cubin. Raises NotCubinError.

    ABI version below 8 (ptxas of CUDA 12 for SM below 100) holds it in bits 0-7 of e_flags, from 8 on in bits 8-15.
    """
    if len(header) < HEADER or header[:4] != b"\x7fELF":
        raise NotCubinError("no ELF header")
    machine, flags = struct.unpack_from("<H", header, 18)[0], struct.unpack_from("<I", header, 48)[0]
    if machine != EM_CUDA:
        raise NotCubinError(f"ELF for machine {machine}, not {EM_CUDA}")
    return int((flags >> 8) & 0xFF if header[8] >= 8 else flags & 0xFF)


def read_toolkit(path: Path) -> int:
    """The CUDA major version whose ptxas wrote a cubin: from its note `.note.nv.tkinfo`, plain text; without it 12. 0: no cubin."""
    try:
        data = path.read_bytes()
        capability(data[:HEADER])
    except (NotCubinError, OSError):
        return 0
    found = re.findall(rb"Cuda compilation tools, release (\d{1,3})\.", data)
    return max(map(int, found), default=12)


def read_capability(path: Path) -> int:
    """`capability` of a file. Raises NotCubinError, OSError."""
    with path.open("rb") as file:
        return capability(file.read(HEADER))
