"""As much of torch as Triton's CUDA driver asks for, so that Triton runs in an environment without a CUDA build of torch."""

import ctypes
import os
import sys
import types


def _capability() -> int:
    """As torch does, after it initialised the driver: a driver that refuses is an error."""
    code = ctypes.CDLL("libcuda.so.1").cuInit(0)
    if code:
        raise RuntimeError(f"CUDA driver initialization failed: error {code}")
    return int(os.environ.get("QUICK_CAPABILITY", "90"))


cuda = types.ModuleType("torch.cuda")
cuda.is_available = lambda: True
cuda.get_device_capability = lambda device=None: (_capability() // 10, _capability() % 10)
cuda.current_device = lambda: 0
cuda.set_device = lambda device: None
version = types.ModuleType("torch.version")
version.hip, version.cuda = None, "13.0"
_C = types.ModuleType("torch._C")
_C._cuda_getCurrentRawStream = lambda index: 0
sys.modules.update({"torch.cuda": cuda, "torch.version": version, "torch._C": _C})


class Tensor:
    pass


class dtype:  # noqa: N801 - torch's own name
    pass


class device:  # noqa: N801 - torch's own name
    def __init__(self, *args: object) -> None:
        pass
