"""What the shared objects of a cache need: processor, Python ABI, C library, other libraries. Read from their ELF headers, nothing is loaded.

A cache that was built on one distribution and served on another fails at dlopen, after the model was loaded (cases O-15, O-16). The rows say it
before: the newest symbol version of glibc and of libstdc++ that any object names, and the system libraries that it links. Libraries that come
with the server's packages are bound by the rows on their versions. Formats: ELF gABI and the GNU symbol versioning of the LSB; file names: PEP
3149.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from baker.caches.plain import AGAIN
from baker.inside.finding import Finding
from baker.inside.manifest import Row

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64", "EM_PPC64": "ppc64le", "EM_S390": "s390x"}
_MOST = 1000  # entries of a table that are looked at; a header may claim billions
_ABI = re.compile(r"\.(cpython-\d+[a-z]*-[^/]+)\.so$")
_VERSION = re.compile(r"(GLIBC|GLIBCXX)_(\d+(?:\.\d+)+)")
# Of glibc itself: its version says it all.
_LIBC = re.compile(r"(libc|libm|libpthread|libdl|librt|libutil|libresolv|ld-linux.*)\.so\.\d+")


@dataclass(frozen=True, slots=True)
class Objects:
    """Over all shared objects of a kind: findings, sonames that they link, and the newest versions that they need ("" for none)."""

    findings: tuple[Finding, ...] = ()
    needed: frozenset[str] = frozenset()
    newest: Mapping[str, str] = field(default_factory=dict)  # "GLIBC" or "GLIBCXX" -> version

    def facts(self) -> list[str]:
        """Names of the facts that its rows compare."""
        return [*(f"lib.{name}" for name in sorted(self.needed)), "libstdcxx.version"]

    def rows(self, owner: str, facts: Mapping[str, Any]) -> list[Row]:
        """Requirements, with `facts` of the builder: a library that is none of its system's comes with a package."""
        rows = []
        if libc := self.newest.get("GLIBC"):
            remedy = f"the shared objects need glibc {libc} or newer: bake on the older distribution"
            rows.append(Row("libc.version", "ge", libc, "hard", owner, remedy))
        for name in sorted(self.needed):
            if facts.get(f"lib.{name}"):
                remedy = f"install the package that has {name}: a shared object of this cache links it"
                rows.append(Row(f"lib.{name}", "present", True, "hard", owner, remedy))
        return rows


def examine(kind: str, root: Path, paths: Sequence[str], facts: Mapping[str, Any]) -> Objects:
    """Look into every `*.so` of `paths`. `facts` are the builder's cpu.arch and python.abi; raises OSError when a file cannot be read."""
    findings: list[Finding] = []
    needed: set[str] = set()
    newest: dict[str, str] = {}
    for path in paths:
        if not path.endswith(".so"):
            continue
        if (match := _ABI.search(path)) and match.group(1) != facts.get("python.abi"):
            text = f"{path} is for another Python"
            findings.append(Finding("object-abi", "hard", kind, text, match.group(1), facts.get("python.abi"), AGAIN))
            continue
        try:
            machine, links, versions = _read(root / path)
        except (ELFError, ValueError, KeyError, TypeError, AttributeError, AssertionError, OverflowError, MemoryError, OSError) as error:
            findings.append(Finding("object-damaged", "hard", kind, f"{path} is no shared object: {error}", "no ELF that can be read", "ELF", AGAIN))
            continue
        if machine != facts.get("cpu.arch"):
            findings.append(Finding("object-machine", "hard", kind, f"{path} is for another processor", machine, facts.get("cpu.arch"), AGAIN))
            continue
        needed |= {name for name in links if not _LIBC.fullmatch(name)}
        for family, version in versions:
            newest[family] = max(newest.get(family, "0"), version, key=_key)
    return Objects(tuple(findings), frozenset(needed), newest)


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part[:9]) for part in version.split("."))


def _read(path: Path) -> tuple[str, list[str], list[tuple[str, str]]]:
    """(processor, sonames, (family, version) of symbols) of one file. Raises ELFError and what pyelftools lets through for broken files."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        machine = str(elf.header["e_machine"])
        links: list[str] = []
        versions: list[tuple[str, str]] = []
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                links += [str(cast(Any, tag).needed) for tag in islice(section.iter_tags(), _MOST) if tag.entry.d_tag == "DT_NEEDED"]
            elif isinstance(section, GNUVerNeedSection):
                names = [aux.name for _, auxiliaries in islice(section.iter_versions(), _MOST) for aux in islice(auxiliaries, _MOST)]
                versions += [(m.group(1), m.group(2)) for name in names if (m := _VERSION.fullmatch(name))]
        return _MACHINES.get(machine, machine), links, versions
