"""Compile a fixed set of functions on the GPU of this machine, in the directories of the environment, and print keys, hits and device facts as JSON.

Run as a program by the server's interpreter (torch and Triton are enough). Twice on the same directories: the second run must hit.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch._dynamo.utils import counters
from torch._inductor.runtime.hints import DeviceProperties
from triton import knobs

seen = []


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def mlp(x, w, b):
    return torch.nn.functional.silu(x @ w) * b


def norm(x, r, g):
    h = x + r
    return h * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * g


def softmax(x):
    return torch.softmax(x.float(), -1).to(x.dtype)


def listener(*, src, metadata, metadata_group, times, cache_hit):
    seen.append((cache_hit, metadata["hash"]))


def names(directory, pattern):
    return sorted(path.name for path in directory.glob(pattern))


def winners(inductor):
    documents = [json.loads(path.read_text()) for path in inductor.glob("**/*.best_config")]
    return sorted(json.dumps({key: value for key, value in one.items() if key != "time_taken_ms"}, sort_keys=True) for one in documents)


def attributes():
    cuda = ctypes.CDLL("libcuda.so.1")
    value, found = ctypes.c_int(), {}
    cuda.cuInit(0)
    for number in range(1, 150):  # CUdevice_attribute in cuda.h
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0) == 0:
            found[str(number)] = value.value
    return found


def main():
    knobs.compilation.listener = listener
    inductor = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    half = {"device": "cuda", "dtype": torch.bfloat16}
    torch.compile(mlp)(torch.zeros(64, 512, **half), torch.zeros(512, 1024, **half), torch.zeros(1024, **half))
    torch.compile(norm)(torch.zeros(96, 4096, **half), torch.zeros(96, 4096, **half), torch.zeros(4096, **half))
    torch.compile(softmax)(torch.zeros(64, 32000, **half))
    x = torch.zeros(5000, device="cuda")
    add[(5,)](x, x, x, 5000, block=1024)
    torch.cuda.synchronize()
    device = torch.cuda.get_device_properties(0)
    json.dump(
        {
            "versions": {"python": sys.version.split()[0], "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda},
            "device": {"name": device.name, "memory": device.total_memory, "sms": device.multi_processor_count},
            "inductor_device": {key: str(value) for key, value in DeviceProperties.create(torch.device("cuda", 0))._asdict().items()},
            "attributes": attributes(),
            "triton_hits": sum(hit for hit, _ in seen),
            "triton_misses": sum(not hit for hit, _ in seen),
            "inductor": {key: value for key, value in counters["inductor"].items() if "cache" in key},
            "keys": {
                "fx": names(inductor, "fxgraph/*/*"),
                "aot": names(inductor, "aotautograd/*"),
                "triton": sorted({key for _, key in seen}),
                "winners": winners(inductor),
            },
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
