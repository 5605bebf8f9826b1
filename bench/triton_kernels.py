"""Compile COUNT kernels for sm_90 with the Triton of this interpreter, into TRITON_CACHE_DIR, without a driver. Run by bench/triton_layer.py."""

import itertools
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, m, n, k, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr, act: tl.constexpr):
    """A matrix product with an activation."""
    row, column = tl.program_id(0), tl.program_id(1)
    at_m, at_n, at_k = row * bm + tl.arange(0, bm), column * bn + tl.arange(0, bn), tl.arange(0, bk)
    total = tl.zeros((bm, bn), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, bk)):
        left = tl.load(a + at_m[:, None] * k + (step * bk + at_k)[None, :], mask=(at_m[:, None] < m), other=0.0)
        right = tl.load(b + (step * bk + at_k)[:, None] * n + at_n[None, :], mask=(at_n[None, :] < n), other=0.0)
        total += tl.dot(left, right)
    if act == 1:
        total = total * tl.sigmoid(total)
    if act == 2:
        total = tl.maximum(total, 0.0)
    tl.store(c + at_m[:, None] * n + at_n[None, :], total, mask=(at_m[:, None] < m) & (at_n[None, :] < n))


@triton.jit
def softmax(out, x, columns, block: tl.constexpr):
    """Of each row."""
    at = tl.arange(0, block)
    value = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + tl.program_id(0) * columns + at, value / tl.sum(value, 0), mask=at < columns)


@triton.jit
def norm(out, x, weight, columns, eps, block: tl.constexpr):
    """RMS norm of each row."""
    at = tl.arange(0, block)
    value = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(value * value, 0) / columns + eps)
    tl.store(out + tl.program_id(0) * columns + at, value * scale * tl.load(weight + at, mask=at < columns, other=0.0), mask=at < columns)


def specialisations():
    """(kernel, signature, constants): a third matrix products, the rest row kernels, as a model's cache holds them."""
    products = [
        (matmul, {**dict.fromkeys("abc", f"*{t}"), **dict.fromkeys("mnk", "i32")}, {"bm": m, "bn": n, "bk": k, "act": act})
        for t, m, n, k, act in itertools.product(("fp16", "bf16"), (16, 32, 64, 128), (32, 64, 128), (32, 64), (0, 1, 2))
    ]
    rows = []
    for t, block, index in itertools.product(("fp16", "bf16", "fp32"), (64, 128, 256, 512, 1024, 2048, 4096, 8192), ("i32", "i64")):
        pointers = {"out": f"*{t}", "x": f"*{t}", "columns": index}
        rows += [(softmax, pointers, {"block": block}), (norm, {**pointers, "weight": f"*{t}", "eps": "fp32"}, {"block": block})]
    groups = (products, rows)
    longest = max(len(group) for group in groups)
    for at in range(longest):
        yield from (group[at] for group in groups if at < len(group))


def main():
    """Compile as many as the first argument says."""
    target = GPUTarget("cuda", 90, 32)
    for kernel, signature, constants in itertools.islice(specialisations(), int(sys.argv[1])):
        order = {name: signature.get(name, "constexpr") for name in kernel.arg_names}
        triton.compile(ASTSource(kernel, order, {(kernel.arg_names.index(name),): value for name, value in constants.items()}), target=target)


if __name__ == "__main__":
    main()
