"""Tar headers, byte for byte the same on every Python: ustar, with a PAX record only where a field cannot hold its value.

Sources: POSIX.1-2017 `pax`, "ustar Interchange Format" and "pax Extended Header"; case O-29 (names), O-30 (owners), O-32 (times).
"""

from __future__ import annotations

BLOCK = 512
END = bytes(2 * BLOCK)  # end of archive: two zero blocks
_NAME = 100
_OCTAL7 = 0o7777777  # largest uid, gid
_OCTAL11 = 0o77777777777  # largest size (8 GiB - 1), time


def _octal(value: int, width: int) -> bytes:
    return b"%0*o\0" % (width - 1, value)


def _block(name: bytes, kind: bytes, *, mode: int, uid: int, gid: int, size: int, seconds: int) -> bytes:
    head = b"".join(
        (
            name[:_NAME].ljust(_NAME, b"\0"),
            _octal(mode, 8),
            _octal(uid, 8),
            _octal(gid, 8),
            _octal(size, 12),
            _octal(seconds, 12),
            b" " * 8,  # checksum is computed over blanks
            kind,
            bytes(_NAME),  # link name
            b"ustar\00000",
            bytes(64),  # no user or group names
            _octal(0, 8) * 2,  # device numbers
        )
    ).ljust(BLOCK, b"\0")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def _record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    total = length + len(str(length))
    while length + len(str(total)) != total:
        total = length + len(str(total))
    return b"%d %s=%s\n" % (total, key, value)


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _name_records(name: bytes) -> bytes:
    if len(name) <= _NAME and (name.isascii() or not _is_utf8(name)):
        return b""  # raw bytes in the ustar field: every reader hands them through
    charset = b"" if _is_utf8(name) else _record(b"hdrcharset", b"BINARY")
    return charset + _record(b"path", name)


def padding(size: int) -> bytes:
    """Zero bytes that fill `size` bytes of content up to a whole block."""
    return bytes(-size % BLOCK)


def header(name: bytes, *, directory: bool, mode: int, size: int = 0, mtime_ns: int = 0, uid: int = 0, gid: int = 0) -> bytes:
    """The header block(s) of one entry; `name` has no leading slash, sizes are bytes, `mtime_ns` nanoseconds since the epoch."""
    if directory:
        name += b"/"
    seconds, nanoseconds = divmod(mtime_ns, 10**9)
    records = _name_records(name)
    if nanoseconds or not 0 <= seconds <= _OCTAL11:
        sign, absolute = ("-", -mtime_ns) if mtime_ns < 0 else ("", mtime_ns)
        records += _record(b"mtime", f"{sign}{absolute // 10**9}.{absolute % 10**9:09d}".encode())
    for key, value, limit in ((b"uid", uid, _OCTAL7), (b"gid", gid, _OCTAL7), (b"size", size, _OCTAL11)):
        if value > limit:
            records += _record(key, b"%d" % value)
    own = _block(
        name,
        b"5" if directory else b"0",
        mode=mode,
        uid=min(uid, _OCTAL7),
        gid=min(gid, _OCTAL7),
        size=min(size, _OCTAL11),
        seconds=min(max(seconds, 0), _OCTAL11),
    )
    if not records:
        return own
    pax = _block(b"././@PaxHeader", b"x", mode=0o644, uid=0, gid=0, size=len(records), seconds=0)
    return pax + records + padding(len(records)) + own
