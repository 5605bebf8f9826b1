"""A module of Triton kernels: imported after Triton, launched later, as real ones are."""

from pathlib import Path

from triton import compiler

SOURCE = Path(__file__).read_text()  # triton.jit reads the source of each kernel when it is defined


def launch(names):
    """Compile each kernel at its first launch."""
    for name in names:
        compiler.compile(name)
