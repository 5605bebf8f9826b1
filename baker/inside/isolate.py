"""What the server gets: network, user, environment, session. Isolated where this machine permits; what was reached is said plainly.

Network: a namespace of our own with only `lo` up (network_namespaces(7)); without root through a user namespace that maps our own ids to themselves.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import socket
import stat
import struct
import subprocess
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from baker.inside import proctree
from baker.inside.job import Job

CLONE_NEWUSER = 0x10000000  # <linux/sched.h>
CLONE_NEWNET = 0x40000000  # <linux/sched.h>
SIOCGIFFLAGS = 0x8913  # <linux/sockios.h>
SIOCSIFFLAGS = 0x8914  # <linux/sockios.h>
IFF_UP = 0x1  # <linux/if.h>

PROBE_S = 30.0  # bound of the short child that starts the interpreter as the other user

_libc = ctypes.CDLL(None, use_errno=True)


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _loopback_up() -> None:
    """Set IFF_UP on `lo`; struct ifreq is 16 bytes of name and a short of flags (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, SIOCGIFFLAGS, struct.pack("16sh22x", b"lo", 0))
        flags = struct.unpack("16sh22x", answer)[1] | IFF_UP
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags))


def _own_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    try:
        _unshare(CLONE_NEWNET)
    except PermissionError:
        _unshare(CLONE_NEWUSER | CLONE_NEWNET)
        _write("/proc/self/setgroups", "deny")  # user_namespaces(7): needed before an unprivileged gid_map
        _write("/proc/self/uid_map", "%d %d 1" % (uid, uid))
        _write("/proc/self/gid_map", "%d %d 1" % (gid, gid))


def network(wanted: str) -> Tuple[str, List[str]]:
    """Enter a network namespace when `wanted` is "none". Returns what was reached ("none" or "host") and remarks. Call before any thread starts."""
    if wanted != "none":
        return "host", []
    try:
        _own_namespace()
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "?")
        return "host", ["network not isolated: own namespace refused (%s: %s); run as root or permit user namespaces" % (name, error.strerror)]
    try:
        _loopback_up()
    except OSError as error:
        # The namespace cannot be left again: a server that cannot reach itself would only time out.
        raise OSError(error.errno, "lo could not be set up in the new network namespace: %s" % error.strerror) from None
    return "none", []


def _blocked(path: str, mode: int) -> str:
    """Why this process cannot use `path` with `mode` (os.R_OK …): names the first component that refuses. "" when it can."""
    real = os.path.realpath(path)
    parts = real.strip("/").split("/")
    for i in range(len(parts)):
        here = "/" + "/".join(parts[: i + 1])
        need = mode if i == len(parts) - 1 else os.X_OK
        if not os.access(here, need):
            return here
    return ""


def _needs(job: Job, extra: Iterable[str]) -> List[Tuple[str, int]]:
    needs = [(job.cwd, os.X_OK)]
    for word in job.argv:
        if word.startswith("/") and os.path.exists(word):
            needs.append((word, os.R_OK | (os.X_OK if os.path.isdir(word) else 0)))
            if os.path.isdir(word):
                needs.extend((os.path.join(word, name), os.R_OK) for name in sorted(os.listdir(word))[:200])
    homes = [job.env[name] for name in ("HOME", "TMPDIR") if name in job.env]
    for path in [*job.roots.values(), *homes]:
        if os.path.isdir(path):
            # A sealed tree (pristine is 0555) is only read, whoever the server runs as.
            needs.append((path, os.X_OK | (os.W_OK if os.stat(path).st_mode & 0o222 else os.R_OK)))
    needs.extend((path, os.R_OK) for path in extra)
    return needs


def _become(uid: int) -> None:
    os.setgroups([])
    os.setgid(0)
    os.setuid(uid)


def _first_blocked(uid: int, needs: Sequence[Tuple[str, int]]) -> str:
    """Ask a short child that runs as `uid`, group 0; it answers through a pipe with the path that stands in the way."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _become(uid)
            blocked = next((b for b in (_blocked(path, mode) for path, mode in needs) if b), "")
            os.write(writer, blocked.encode("utf-8", "surrogateescape"))
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode("utf-8", "surrogateescape")
    if os.waitpid(child, 0)[1] != 0:
        raise OSError(errno.EPERM, "changing to uid %d, group 0 failed" % uid)
    return answer


def _describe(path: str) -> str:
    info = os.stat(path)
    return "%s (mode %04o, owner %d:%d)" % (path, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)


def _starts(uid: int, argv: Sequence[str], env: Dict[str, str], cwd: str) -> str:
    """Start the interpreter as `uid` for a moment, when argv[0] is a Python; "" or why it does not start."""
    if not os.path.basename(argv[0]).startswith("python"):
        return ""
    try:
        done = subprocess.run(
            [argv[0], "-c", "pass"],
            env=env,
            cwd=cwd,
            user=uid,
            group=0,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=PROBE_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
    return "" if done.returncode == 0 else "exit %d: %s" % (done.returncode, last[:200])


def user(job: Job, readable: Iterable[str] = ()) -> Tuple[Optional[int], List[str]]:
    """Decide whether the server can run as `job.uid`, group 0. Returns that uid or None (own user), and remarks.

    `readable` names further files that the server must read (tools.zip). Nothing is changed on disk.
    """
    if job.uid is None or job.uid == os.geteuid():
        return None, []
    if os.geteuid() != 0:
        return None, ["server runs as uid %d, not %d: only root may change users" % (os.geteuid(), job.uid)]
    try:
        blocked = _first_blocked(job.uid, _needs(job, readable))
    except OSError as error:
        return None, ["server runs as uid 0, not %d: %s" % (job.uid, error.strerror)]
    if blocked:
        return None, ["server runs as uid 0, not %d: uid %d cannot use %s" % (job.uid, job.uid, _describe(blocked))]
    failed = _starts(job.uid, job.argv, job.env, job.cwd)
    if failed:
        return None, ["server runs as uid 0, not %d: %s does not start there (%s)" % (job.uid, job.argv[0], failed)]
    return job.uid, []


def tools_zip() -> str:
    """The zip that this code runs from; it holds the recorder as sitecustomize. Raises RuntimeError outside of a zip."""
    path = os.path.abspath(__file__)
    while path != "/" and not os.path.isfile(path):
        path = os.path.dirname(path)
    if path == os.path.abspath(__file__) or path == "/":
        raise RuntimeError("to record, the driver must run from tools.zip (found %s)" % os.path.abspath(__file__))
    return path


def environment(job: Job) -> Dict[str, str]:
    """The server's whole environment: the job's, the recorder's two variables, and a server key that the driver was given."""
    env = dict(job.env)
    if os.environ.get("VLLM_API_KEY"):
        env.setdefault("VLLM_API_KEY", os.environ["VLLM_API_KEY"])  # never in the job file: that is kept
    if job.record:
        env["PYTHONPATH"] = os.pathsep.join([tools_zip()] + ([env["PYTHONPATH"]] if env.get("PYTHONPATH") else []))
        env["BAKER_RECORD"] = job.record
    return env


def spawn(job: Job, uid: Optional[int], output: int) -> subprocess.Popen[bytes]:
    """Start the server in its own session, output into the descriptor `output`; it is killed when this process ends. Raises OSError, ValueError.

    Call from the main thread: the parent-death signal is bound to the thread that forks (prctl(2)).
    """
    parent = os.getpid()
    user: Dict[str, Any] = {} if uid is None else {"user": uid, "group": 0, "extra_groups": []}

    def in_child() -> None:
        # Runs after the change of user, which would clear the parent-death signal.
        if not proctree.die_with_parent(signal.SIGKILL, parent):
            os._exit(1)

    return subprocess.Popen(
        job.argv,
        env=environment(job),
        cwd=job.cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=in_child,
        **user,
    )
