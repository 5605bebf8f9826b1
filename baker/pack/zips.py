"""The two zips of `baker.inside`: `start`, which ships in every image, and the tools, which never do. Same sources, same bytes.

Entries are stored, not deflated: zlib builds differ in their output, and an import from a stored entry is faster.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import marshal
import zipfile
from pathlib import Path

import baker
from baker import inside

# Modules that only the builder's second zip holds: warm-up driver, recorder and their helpers.
TOOLS_ONLY = frozenset({"job", "driver", "once", "play", "isolate", "recorder", "events", "ninja", "tools", "proctree", "logtail"})
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold
_UNIX = 3
_MAIN = "import sys\n\nfrom baker.inside.{module} import main\n\nsys.exit(main())\n"


def _package() -> Path:
    return Path(inside.__file__).parent


def modules() -> tuple[str, ...]:
    """Every module of `baker.inside`, sorted."""
    return tuple(sorted(path.stem for path in _package().glob("*.py")))


def start_modules() -> tuple[str, ...]:
    """The modules that ship in the image."""
    return tuple(name for name in modules() if name not in TOOLS_ONLY)


def _archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = _UNIX
            entry.external_attr = 0o100444 << 16
            archive.writestr(entry, files[name])
    return out.getvalue()


def _files(names: tuple[str, ...], main: str) -> dict[str, bytes]:
    files = {f"baker/inside/{name}.py": (_package() / f"{name}.py").read_bytes() for name in names}
    files["baker/__init__.py"] = Path(baker.__file__).read_bytes()
    files["__main__.py"] = _MAIN.format(module=main).encode()
    return files


def _compiled(name: str, source: bytes) -> bytes:
    """Byte code in PEP 552's hash-based form that is never checked against its source: they ship in one sealed file.

    Marshal version 2 has no references and no interning marks, so the bytes depend on the source alone; CPython reads every version.
    """
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source) + marshal.dumps(code, 2)


def start_zip(magic: str = "") -> bytes:
    """The image's entry point: `python -I -S <root>/start -- COMMAND` runs `baker.inside.start.main()`.

    `magic`: hex of the server interpreter's byte-code magic number. Where it is the builder's own, compiled modules ship beside the sources (about
    35 of 86 ms of `start --version`, measured); any other interpreter reads the sources.
    """
    files = _files(start_modules(), "start")
    return _archive(_with_code(files) if magic == importlib.util.MAGIC_NUMBER.hex() else files)


@functools.cache
def tools_zip() -> bytes:
    """The builder's driver: `python -I -S tools.zip drive JOB`; on PYTHONPATH its `sitecustomize` is the recorder.

    Compiled for the builder's own interpreter; a server's of another version reads the sources.
    """
    files = _files(modules(), "tools")
    files["sitecustomize.py"] = files["baker/inside/recorder.py"]
    return _archive(_with_code(files))


def _with_code(files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, **{f"{name}c": _compiled(name, source) for name, source in files.items()}}
