"""Facts about the GPU from the driver's own libraries, by ctypes, in a forked child: a driver that hangs must not hang the start.

libcuda answers for what the server will see (it honours CUDA_VISIBLE_DEVICES); NVML gives the driver's version and who computes now.
Names and numbers are those of
NVIDIA's public headers (cuda.h, nvml.h). Without libcuda the answer takes milliseconds.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
from typing import Any, Dict, List, Optional, Tuple

LIMIT_S = 5.0  # a healthy cuInit on an 8-GPU machine stays below; beyond it the driver counts as hanging

PR_SET_PDEATHSIG = 1  # linux/prctl.h: the child goes when start is ended while the driver hangs

# CUdevice_attribute in cuda.h.
SM_COUNT, CC_MAJOR, CC_MINOR = 16, 75, 76
# CUresult in cuda.h, as far as the remedy differs.
INSUFFICIENT_SIZE = 7  # nvmlReturn_t: there are more than fit into no room at all
NO_DEVICE, STUB, DRIVER_MISMATCH, COMPAT_UNSUPPORTED = 100, 34, 803, 804

MOST = 1024  # devices; no machine has as many
MODULE = "/proc/driver/nvidia/version"
STAND_IN = "vgpu_device"  # a symbol that only the stand-ins of tests/vgpu export: what they answer is no GPU


def explain(code: int, driver: str) -> str:
    """What a failed cuInit means. `driver` is the kernel driver's version, "" when unknown."""
    host = "host driver %s" % (driver or "of unknown version")
    if code in (DRIVER_MISMATCH, COMPAT_UNSUPPORTED):
        return (
            "CUDA error %d: the compat libcuda in the image conflicts with the %s; take the compat directory out of LD_LIBRARY_PATH "
            "and /etc/ld.so.conf.d, or use an image for this driver" % (code, host)
        )
    if code == NO_DEVICE:
        return "CUDA error 100: the driver sees no device (check CUDA_VISIBLE_DEVICES and the container's GPU request)"
    if code == STUB:
        return "CUDA error 34: libcuda.so.1 is the toolkit's stub, not the driver's library; take the stubs directory out of the loader path"
    return "CUDA error %d at cuInit, %s" % (code, host)


def _nvml(ctypes: Any) -> Any:
    """NVML, initialised; None where the container has none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        return nvml if nvml.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


def _module_version(path: str = MODULE) -> str:
    """The kernel module's version, "" where its file is not mounted."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")


def _driver(ctypes: Any, nvml: Any, sources: Dict[str, str]) -> str:
    """The kernel driver's version from NVML, else from its own file; "" when neither tells."""
    text = ctypes.create_string_buffer(96)
    if nvml is not None and nvml.nvmlSystemGetDriverVersion(text, 96) == 0:
        sources["driver.version"] = "NVML"
        return str(text.value.decode("ascii", "replace"))
    sources["driver.version"] = MODULE
    return _module_version()


def _library_version(path: str) -> str:
    """`580.95.05` of the file that libcuda.so.1 leads to; "" for another name."""
    match = re.search(r"/libcuda\.so\.(\d+(?:\.\d+)+)$", os.path.realpath(path)) if path else None
    return match.group(1) if match else ""


def _processes(ctypes: Any, cuda: Any, nvml: Any, handle: Any) -> Optional[int]:
    """How many processes compute on the device now; None when NVML cannot tell."""
    uuid, device, count = ctypes.create_string_buffer(16), ctypes.c_void_p(), ctypes.c_uint(0)
    try:
        if nvml is None or cuda.cuDeviceGetUuid_v2(uuid, handle):
            return None
        text = uuid.raw.hex()
        name = "GPU-%s-%s-%s-%s-%s" % (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        if nvml.nvmlDeviceGetHandleByUUID(name.encode("ascii"), ctypes.byref(device)):
            return None
        code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), None)
    except AttributeError:  # a driver without one of them
        return None
    return count.value if code in (0, INSUFFICIENT_SIZE) else None


def _device(ctypes: Any, cuda: Any, nvml: Any, index: int) -> Dict[str, Any]:
    handle = ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    memory = ctypes.c_size_t()
    codes = [cuda.cuDeviceGet(ctypes.byref(handle), index), cuda.cuDeviceGetName(name, 256, handle)]
    codes.append(cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle))
    values = []
    for attribute in (CC_MAJOR, CC_MINOR, SM_COUNT):
        value = ctypes.c_int()
        codes.append(cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle))
        values.append(value.value)
    if any(codes):
        raise OSError("device %d: CUDA error %d" % (index, max(codes)))
    if values[0] < 1 or values[1] < 0:
        raise OSError("device %d: the driver tells compute capability %d.%d" % (index, values[0], values[1]))
    return {
        "gpu.name": name.value.decode("utf-8", "replace"),
        "gpu.cc": "%d.%d" % (values[0], values[1]),
        "gpu.sm_count": values[2],
        "gpu.memory": memory.value,
        "gpu.mig": mig_profile(name.value.decode("utf-8", "replace")),
        "gpu.processes": _processes(ctypes, cuda, nvml, handle),
    }


def mig_profile(name: str) -> Optional[str]:
    """`1g.10gb` of "NVIDIA H100 80GB HBM3 MIG 1g.10gb", the form in which libcuda names an instance; None for a whole GPU."""
    return name.rpartition(" MIG ")[2] if " MIG " in name else None


def _library() -> str:
    """Path of the libcuda.so.1 that is mapped into this process; "" when the maps do not tell."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = [line.rstrip("\n").partition("/")[2] for line in maps if "/libcuda.so" in line]
    except OSError:
        return ""
    # proc(5): a newline is written \\012, and " (deleted)" follows a file that is gone.
    path = ("/" + paths[0]).replace("\\012", "\n") if paths else ""
    return path if os.path.exists(path) else ""


def _query() -> Dict[str, Any]:
    """Runs in the child: all facts, or gpu.error."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    facts: Dict[str, Any] = {"gpu.count": 0, "sources": {"driver.module": MODULE, "cuda.library": "/proc/self/maps"}}
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        missing = "cannot open shared object file" in str(error) and str(error).startswith("libcuda.so.1:")
        facts["gpu.error"] = "libcuda.so.1 not found" if missing else "libcuda.so.1 cannot be loaded: %s" % error
        return facts
    facts["gpu.virtual"] = hasattr(cuda, STAND_IN)
    facts["cuda.library"] = _library() or None
    nvml, sources = _nvml(ctypes), facts["sources"]
    driver = _driver(ctypes, nvml, sources)
    facts["driver.version"] = driver or None
    facts["driver.module"] = _module_version() or None
    facts["cuda.library_version"] = _library_version(facts["cuda.library"] or "") or None
    if driver and facts["cuda.library_version"]:
        facts["cuda.forward_compat"] = facts["cuda.library_version"] != driver
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        facts["cuda.driver_api"] = "%d.%d" % (version.value // 1000, version.value % 1000 // 10)
    code = cuda.cuInit(0)
    if code:
        facts["gpu.error"] = explain(code, driver)
        return facts
    count = ctypes.c_int()
    code = cuda.cuDeviceGetCount(ctypes.byref(count))
    if code:
        facts["gpu.error"] = "CUDA error %d at cuDeviceGetCount" % code
        return facts
    if not 0 <= count.value <= MOST:
        facts["gpu.error"] = "the driver tells of %d devices" % count.value
        return facts
    facts["gpu.count"] = count.value
    facts.update(_merge([_device(ctypes, cuda, nvml, i) for i in range(count.value)]))
    return facts


def _merge(devices: List[Dict[str, Any]]) -> Dict[str, Any]:
    """One value where all devices agree, else the list of different ones (which no `eq` row accepts)."""
    merged: Dict[str, Any] = {}
    for key in devices[0] if devices else ():
        values = [device[key] for device in devices]
        merged[key] = values[0] if values.count(values[0]) == len(values) else sorted(set(values), key=str)
    return merged


def _child(write: int) -> None:
    """Answer on the pipe and leave without running any of the parent's exit handlers. What a library prints goes to stderr."""
    try:
        try:
            os.dup2(2, 1)
            facts = _query()
        except (OSError, AttributeError, ValueError) as error:
            facts = {"gpu.error": "%s: %s" % (type(error).__name__, error)}
        os.write(write, json.dumps(facts).encode("ascii"))
    finally:
        os._exit(0)


def _receive(read: int, limit_s: float) -> Tuple[bytes, bool]:
    """Everything the child wrote, and whether it ended in time."""
    data = b""
    end = time.monotonic() + limit_s
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([read], [], [], left)[0]:
            return data, False
        piece = os.read(read, 65536)
        if not piece:
            return data, True
        data += piece


def query(limit_s: float = LIMIT_S) -> Dict[str, Any]:
    """Facts of the GPUs and their driver; see baker.inside.probe for the names. "sources" says which library or file answered.

    Facts that the driver did not give are absent. Takes at most `limit_s` seconds; raises nothing.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _child(write)
    os.close(write)
    try:
        data, ended = _receive(read, limit_s)
    finally:
        os.close(read)
        if not _reaped(pid):
            os.kill(pid, signal.SIGKILL)
            _reaped(pid, 1.0)
    if not ended:
        return {"gpu.error": "the driver did not answer within %g s; look at dmesg and nvidia-smi on the node" % limit_s}
    try:
        facts = json.loads(data.decode("ascii"))
    except ValueError:
        return {"gpu.error": "the driver library ended the process that asked it"}
    return facts if isinstance(facts, dict) else {}


def _reaped(pid: int, wait_s: float = 0.2) -> bool:
    """Collect the child; False when it is still there (a process in an uninterruptible driver call cannot be waited for)."""
    end = time.monotonic() + wait_s
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
