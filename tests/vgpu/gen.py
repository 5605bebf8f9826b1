"""Generate what the stand-in libraries do not write by hand: `python -m tests.vgpu.gen HEADERS NVIDIA_LIBRARIES NCCL PYNVML OUT`.

From NVIDIA's public headers (cuda.h, cudaTypedefs.h) and the symbol lists of its libraries: a weak stub for every function, which logs its name once
and answers a fixed code, and the table of cuGetProcAddress (name, CUDA version since which, spelling).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

STUB = '__attribute__((weak,visibility("default"))) long {name}(void) {{ return {answer}("{name}"); }}\n'
LIBRARIES = {"libcudart": "vgpu_unknown", "libcublas": "vgpu_blas", "libcublasLt": "vgpu_blas"}


def output(*command: str) -> str:
    """What a command prints. Raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exports(library: Path) -> list[str]:
    """Functions that a shared library exports, without symbol versions."""
    rows = (line.split() for line in output("nm", "-D", "--defined-only", str(library)).splitlines())
    return sorted({row[2].partition("@")[0] for row in rows if len(row) == 3 and row[1] in "TW"})


def stubs(path: Path, names: Iterable[str], answer: str) -> None:
    """A C file with one weak stub a name."""
    text = f"/* generated */\nextern long {answer}(const char *);\n"
    path.write_text(text + "".join(STUB.format(name=name, answer=answer) for name in names))


def driver(headers: Path) -> tuple[list[str], dict[str, str]]:
    """All spellings of driver functions (`_v2`, `_ptsz`), and base name -> current spelling."""
    source = output("gcc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", "-x", "c", str(headers / "cuda.h"))
    names = sorted(set(re.findall(r"\bCUresult\s+(cu[A-Z]\w+)\s*\(", source)))
    defined = re.findall(r"#define\s+(cu\w+)\s+(?:__CUDA_API_PT[DS][SZ]\()?(cu\w+)\)?", (headers / "cuda.h").read_text())
    return names, {base: name for base, name in defined if name in names}


def functions(headers: Path, names: list[str], current: dict[str, str]) -> str:
    """Rows {name, since, spelling}: the newest version of a name has the current spelling, older ones count down from it."""
    since: dict[str, set[int]] = {}
    for name, version in re.findall(r"PFN_(cu\w+?)_v(\d+)(?:_pt[sd][zs])?\)", (headers / "cudaTypedefs.h").read_text()):
        since.setdefault(name, set()).add(int(version))
    rows = []
    for name, versions in sorted(since.items()):
        newest = current.get(name, name)
        top = int(newest.rpartition("_v")[2]) if re.search(r"_v\d$", newest) else 1
        for step, version in enumerate(sorted(versions, reverse=True)):
            spelling = name if top - step <= 1 else f"{name}_v{top - step}"
            spelling = spelling if spelling in names else name if name in names else ""
            if spelling:
                rows.append(f'{{"{name}", {version}, "{spelling}"}},\n')
    return "".join(rows)


def nvml(modules: Iterable[Path]) -> list[str]:
    """NVML functions that Python bindings ask for, with and without version suffix."""
    found: set[str] = set()
    for module in modules:
        if module.is_file():
            found |= set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"', module.read_text(encoding="utf-8")))
    return sorted(found | {re.sub(r"_v\d$", "", name) for name in found})


def generate(headers: Path, libraries: Path, nccl: Path, bindings: Iterable[Path], out: Path) -> int:
    """Write all generated files to `out`; returns the number of driver functions."""
    out.mkdir(parents=True, exist_ok=True)
    names, current = driver(headers)
    stubs(out / "cuda_stubs.c", names, "vgpu_unknown")
    (out / "functions.h").write_text(functions(headers, names, current))
    for name, answer in LIBRARIES.items():
        (library,) = libraries.glob(f"{name}.so.[0-9]*[0-9]")
        real = library.with_name(library.name + ".nvidia")
        stubs(out / f"{name}_stubs.c", exports(real if real.exists() else library), answer)
        (out / f"{name}.map").write_text(f"{library.name} {{ global: *; }};\n")
    real = nccl.with_name(nccl.name + ".nvidia")
    stubs(out / "nccl_stubs.c", exports(real if real.exists() else nccl), "vgpu_nccl")
    stubs(out / "nvml_stubs.c", nvml(bindings), "vgpu_nvml")
    return len(names)


if __name__ == "__main__":
    headers, libraries, nccl, *bindings, out = map(Path, sys.argv[1:])
    print(generate(headers, libraries, nccl, bindings, out), "driver functions")
