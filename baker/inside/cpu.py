"""Facts about the processor, read from /proc/cpuinfo: what decides whether native code that was compiled elsewhere runs here."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional

# Flags under their /proc/cpuinfo names (Linux arch/x86/include/asm/cpufeatures.h) that gcc turns into instructions for -march=native
# (GCC manual, "x86 Options"); timing, virtualisation and kernel-only flags are left out. aarch64: the hwcap names of "Features".
ISA_PREFIXES = ("avx", "amx", "sse4", "bmi", "sve", "asimd")
_ISA_NAMES = (
    "pni ssse3 popcnt abm fma fma4 xop tbm f16c adx movbe aes vaes pclmulqdq vpclmulqdq sha_ni gfni rdrand rdseed movdiri movdir64b "
    "fphp atomics bf16 i8mm fcma jscvt lrcpc dcpop sha3 sha512 sme sme2"
)
ISA_NAMES = frozenset(_ISA_NAMES.split())
# What torch takes for AVX-512 (ATen/cpu/Utils.cpp asks cpuinfo for these five).
AVX512 = ("avx512f", "avx512vl", "avx512bw", "avx512dq", "fma")
# Order and names of torch/_inductor/cpu_vec_isa.py, `supported_vec_isa_list`, read in torch 2.13.0: (level, flags it needs, additions that
# the level's build_arch_flags adds where the processor has them).
LEVELS = (
    ("amx_tile", (*AVX512, "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8"), ("avx512_bf16", "amx_fp16")),
    ("avx512_vnni", (*AVX512, "avx512_vnni"), ()),
    ("avx512", AVX512, ("avx512_bf16",)),
    ("avx2", ("avx2", "fma", "f16c"), ()),
)


def read_cpuinfo(path: str = "/proc/cpuinfo") -> Dict[str, str]:
    """Fields of the first processor, keys in lower case; only its block is read (the file of a large machine is megabytes). Raises OSError."""
    fields: Dict[str, str] = {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, colon, value = line.partition(":")
            if not colon and fields:
                break
            if colon:
                fields[key.strip().lower()] = value.strip()
    return fields


def model(fields: Mapping[str, str]) -> Optional[str]:
    """The model's name, or implementer and part where aarch64 kernels give no name; None when the file says neither."""
    if fields.get("model name"):
        return fields["model name"]
    part = " ".join(fields[key] for key in ("cpu implementer", "cpu part") if key in fields)
    return part or None


def isa(fields: Mapping[str, str]) -> Optional[List[str]]:
    """Sorted instruction-set flags that change what `-march=native` emits; None when the kernel lists none."""
    flags = (fields.get("flags") or fields.get("features") or "").split()
    return sorted(f for f in set(flags) if f.startswith(ISA_PREFIXES) or f in ISA_NAMES) if flags else None


def vector(fields: Mapping[str, str], machine: str, env: Mapping[str, str]) -> Optional[str]:
    """The vector level that torch Inductor would pick, with its additions: `amx_tile+avx512_bf16`, `avx512_vnni`, `avx2`, `none`.

    Mirrors `pick_vec_isa` of torch 2.13.0 on Linux from the processor's flags and ATEN_CPU_CAPABILITY; its trial compile is taken to succeed.
    aarch64: `sve` or `asimd`. None when the flags are unknown.
    """
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    if not flags:
        return None
    if machine == "aarch64":
        return "sve" if flags & {"sve", "sve2"} and "bf16" in flags else "asimd"
    fitting = [(name, extra) for name, needs, extra in LEVELS if flags.issuperset(needs)]
    wanted = env.get("ATEN_CPU_CAPABILITY", "")
    if not fitting or wanted == "default":
        return "none"
    if wanted in ("avx2", "avx512"):
        # amx_tile and avx512_vnni are AVX-512 levels too; an unmet wish falls back to the best level, as in torch.
        wide = wanted == "avx512"
        fitting = [level for level in fitting if (level[0] != "avx2") == wide] or fitting
    name, extra = fitting[0]
    return "+".join([name, *(e for e in extra if e in flags)])


def count() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))
