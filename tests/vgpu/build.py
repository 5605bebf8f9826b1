"""Build the stand-in libraries: `python -m tests.vgpu.build --site SITE_PACKAGES --cuda CUDA_HOME --out DIR`. Needs gcc, binutils, CUDA headers."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from tests.vgpu import gen

SOURCES = Path(__file__).parent / "src"
CUDA = ("settings", "device", "memory", "copy", "module", "launch", "stream", "symbols")
RUNTIME = ("runtime", "runtime_stream", "runtime_kernel")


def headers(site: Path, cuda: Path) -> Path:
    """The folder with cuda.h and cudaTypedefs.h: the toolkit's, else that of torch's wheels. Raises SystemExit."""
    places = [cuda / "include", *sorted((site / "nvidia").glob("cu*/include")), site / "nvidia" / "cuda_runtime" / "include"]
    for place in places:
        if (place / "cuda.h").is_file() and (place / "cudaTypedefs.h").is_file():
            return place
    raise SystemExit(f"no cuda.h and cudaTypedefs.h in {', '.join(map(str, places))}: pass --cuda with a CUDA toolkit")


def real(site: Path, name: str) -> Path:
    """NVIDIA's library `name.so.N` in the wheels. Raises SystemExit."""
    found = sorted(path for path in (site / "nvidia").rglob(f"{name}.so.[0-9]*") if path.name.rpartition(".")[2].isdigit())
    if not found:
        raise SystemExit(f"no {name}.so.N below {site / 'nvidia'}: is a CUDA build of torch installed there?")
    return found[0]


def compile_library(include: Path, generated: Path, sources: list[Path], out: Path, *flags: str) -> None:
    """One shared library; it appears by a rename, for overwriting a mapped one kills running engines."""
    new = out.with_name(out.name + ".new")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-fvisibility=hidden", f"-I{include}", f"-I{SOURCES}", f"-I{generated}"]
    subprocess.run([*command, *map(str, sources), f"-Wl,-soname,{out.name}", "-o", str(new), *flags], check=True)
    new.rename(out)


def build(site: Path, cuda: Path, out: Path) -> None:
    """Generate and compile all six libraries into `out`."""
    include = headers(site, cuda)
    out.mkdir(parents=True, exist_ok=True)
    runtime, nccl = real(site, "libcudart"), real(site, "libnccl")
    bindings = [site / "pynvml.py", site / "vllm" / "third_party" / "pynvml.py"]
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory)
        count = gen.generate(include, runtime.parent, nccl, bindings, made)
        link = (f"-L{out}", "-l:libcuda.so.1", "-ldl")
        compile_library(include, made, [*(SOURCES / f"{n}.c" for n in CUDA), made / "cuda_stubs.c"], out / "libcuda.so.1", "-ldl", "-lpthread")
        for name, sources, flags in (
            ("libcudart", [SOURCES / f"{n}.c" for n in RUNTIME], ()),
            ("libcublas", [SOURCES / "blas.c"], ()),
            ("libcublasLt", [SOURCES / "blas.c"], ("-DLT",)),
        ):
            path = out / real(site, name).name
            versions = f"-Wl,--version-script={made / name}.map"
            compile_library(include, made, [*sources, made / f"{name}_stubs.c"], path, versions, *flags, *link)
        compile_library(include, made, [SOURCES / "nvml.c", made / "nvml_stubs.c"], out / "libnvidia-ml.so.1", *link)
        compile_library(include, made, [SOURCES / "nccl.c", made / "nccl_stubs.c"], out / nccl.name, *link)
    print(f"{out}: six libraries, {count} driver functions")


def main() -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description="Build the stand-in CUDA libraries.")
    parser.add_argument("--site", type=Path, required=True, help="site-packages with torch's NVIDIA wheels")
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda"), help="CUDA toolkit, for its headers")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    build(arguments.site.resolve(), arguments.cuda, arguments.out.resolve())


if __name__ == "__main__":
    main()
