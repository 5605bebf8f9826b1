"""ninja that found nothing to do is no compile: which of its runs count.

FlashInfer runs ninja at every load of a module, fresh or not. ninja writes what it builds below its directory (`-C DIR`); where that directory is
among the watched roots, the difference of files tells whether it built anything. Elsewhere a run counts.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Dict, List

from baker.inside.events import Record

_NINJA = re.compile(r"^(?:\S*/)?(?:ninja|ninja-build|samu)\s")


def directory(command: str) -> str:
    """The directory of `-C DIR` in a ninja command line; "" when there is none or it is another program."""
    if not _NINJA.match(command):
        return ""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    for at, word in enumerate(words):
        if word == "-C" and at + 1 < len(words):
            return words[at + 1]
        if word.startswith("-C") and len(word) > 2:
            return word[2:]
    return ""


def set_aside(record: Record, roots: Dict[str, str]) -> List[str]:
    """Take ninja's runs in watched directories out of the record's events; one remark for each."""
    tops = [os.path.realpath(path) for path in roots.values()]
    kept, remarks = [], []
    for event in record.events:
        where = directory(event.detail) if event.kind == "child-compiler" else ""
        real = os.path.realpath(where) if where.startswith("/") else ""
        if real and any(real == top or real.startswith(top + "/") for top in tops):
            remarks.append("ninja ran in %s: whether it built anything is judged by the files there" % where)
        else:
            kept.append(event)
    record.events = kept
    return remarks
