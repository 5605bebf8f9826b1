"""One YAML document from an untrusted file: size limit, no anchors, no duplicate keys, no types beyond plain data, never code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from baker.errors import UsageError

# A profile of 256 stages is about 20 kB; a thousandth of this limit is the usual size.
LIMIT = 1 << 20


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses what it would accept in silence: aliases (a few lines can expand to gigabytes) and repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse an alias where a node is expected."""
        if self.check_event(yaml.AliasEvent):
            mark = self.get_mark()
            raise yaml.composer.ComposerError(None, None, "found an alias, expected the value itself", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping whose keys are all different."""
        seen: dict[Any, Any] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, dict | list):
                raise yaml.constructor.ConstructorError(None, None, "found a mapping or list as key, expected text", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"found the key {key!r} twice, expected it once", key_node.start_mark)
            seen[key] = key_node
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The one document in `path` as plain data. Raises UsageError with line and column for anything else, size first."""
    data = _bytes(path)
    try:
        return yaml.load(data.decode("utf-8"), Loader=_Loader)  # a SafeLoader, whose name ruff's S506 cannot know
    except UnicodeDecodeError as error:
        raise _error(path, f"not UTF-8 at byte {error.start}", "UTF-8 text") from None
    except RecursionError:
        raise _error(path, "nested too deeply", "a mapping with lists of mappings") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _error(path, f"{place}{error.problem}", "one YAML document of plain data") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _error(path, str(error).splitlines()[0], "one YAML document of plain data") from None


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(LIMIT + 1)
    except OSError as error:
        raise _error(path, error.strerror or str(error), "a file that can be read") from None
    if len(data) > LIMIT:
        raise _error(path, f"more than {LIMIT} bytes", f"at most {LIMIT} bytes")
    return data


def _error(path: Path, found: str, expected: str) -> UsageError:
    return UsageError(
        f"profile {path} cannot be read: {found}",
        code="profile-unreadable",
        found=found,
        expected=expected,
        remedy="compare with a profile that comes with baker: `baker profiles show default`",
    )
