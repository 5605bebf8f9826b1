"""Scripted debris: files, sockets and processes that a start leaves where it should not."""

import os
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

_STUBBORN = "import signal,time\nfor s in (1,2,15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(600)"
_WRITER = """
import os, sys, time
path, seconds, parent = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
import signal
for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)
end = None
while end is None or time.monotonic() < end:
    with open(path, "a") as file:
        file.write("x" * 1000)
    if end is None and os.getppid() != parent:
        end = time.monotonic() + seconds
    time.sleep(0.001)
"""
_MAPS_TORCH = "import mmap,sys,time\nf=open(sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\nwhile sys.stdin.read(1): pass"


def _detached(code, *args, **kwargs):
    return subprocess.Popen([sys.executable, *kwargs.pop("flags", []), "-c", code, *args], start_new_session=True, **kwargs)


def processes(script, cache):
    """Children that do not go away by themselves. Returns what must be kept alive."""
    kept = [_detached(_STUBBORN, stdin=subprocess.DEVNULL) for _ in range(script.get("stubborn", 0))]
    if script.get("writes_after_end_s"):
        cache.mkdir(parents=True, exist_ok=True)
        kept.append(_detached(_WRITER, str(cache / "late.bin"), str(script["writes_after_end_s"]), str(os.getpid())))
    if script.get("unobserved"):
        import torch

        library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
        kept.append(_detached(_MAPS_TORCH, str(library), flags=["-I"], stdin=subprocess.PIPE))
    return kept


def files(script, cache, artifact):
    """Files at scripted places; a real start always leaves a rendezvous file and sockets in the temporary directory."""
    (Path(tempfile.gettempdir()) / f"vllm_dist_{uuid.uuid4().hex}").write_text("rendezvous")
    cache.mkdir(parents=True, exist_ok=True)
    if script.get("new_file"):
        (cache / f"{uuid.uuid4().hex}.py").write_text("X = 1\n")
    for path in script.get("paths", []):
        if not (cache / path).exists():
            (cache / path).parent.mkdir(parents=True, exist_ok=True)
            (cache / path).write_text(path)
            break
    if script.get("odd_files") and not (cache / "fifo").exists():
        os.mkfifo(cache / "fifo")
        (cache / "link").symlink_to("fifo")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(cache / "socket"))
    if script.get("zero_rank"):
        empty = artifact.parent.parent / "rank_3_0" / "model"
        empty.parent.mkdir(parents=True, exist_ok=True)
        empty.touch()
    if script.get("stray"):
        (Path(os.environ.get("HOME", "/")) / "stray.txt").write_text("home")
        (Path(tempfile.gettempdir()) / "stray.so").write_bytes(b"\x7fELFstray")
