"""The arguments that `baker build` and `baker plan` share; what they hand over is a BuildRequest."""

from __future__ import annotations

import difflib
import functools
import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from baker.errors import UsageError
from baker.request import DEFAULT_ROOT, BuildRequest
from baker.spec import ARCHITECTURES, parse_arch

Function = Callable[..., Any]


class ServeCommand(click.Command):
    """A command that takes everything after the first `--` as the server's arguments, and nothing before it as such."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut the server's arguments off before click sees them, so that a stray word before `--` is still an error."""
        cut = args.index("--") if "--" in args else len(args)
        tail = tuple(args[cut + 1 :])
        rest = super().parse_args(ctx, args[:cut])
        ctx.params["serve"] = tail
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show the tail in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- SERVE ARGS...]"]


class OneOf(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """A value from an explicit list, with the nearest one named for a slip. The list is asked for only when it is needed."""

    name = "name"

    def __init__(self, values: Callable[[], Sequence[str]]) -> None:
        self._values = values

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """`[gzip|zstd]`."""
        return f"[{'|'.join(self._values())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The value, if it is in the list. Raises UsageError otherwise."""
        values = self._values()
        if value in values:
            return str(value)
        option = param.opts[0] if param else "value"
        near = difflib.get_close_matches(str(value).lower(), values, 1)
        raise UsageError(
            f"{option}: unknown value {value!r}",
            code="unknown-value",
            found=str(value),
            expected=", ".join(values),
            remedy=f"did you mean {near[0]}?" if near else "pass one of the listed values",
        )

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Values that begin with what stands there."""
        return [CompletionItem(value) for value in self._values() if value.startswith(incomplete)]


class _Arch(OneOf):
    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Short: the list would fill two lines of the help."""
        return "ARCH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Validate by spec.parse_arch."""
        return parse_arch(str(value))


def door(folder: str) -> OneOf:
    """Names in `baker.<folder>.ALL`: what exists is what is offered."""
    return OneOf(lambda: [item.name for item in importlib.import_module(f"baker.{folder}").ALL])


def fixed(*values: str) -> OneOf:
    """A constant list."""
    return OneOf(lambda: values)


_OPTIONS = (
    click.option("--arch", required=True, type=_Arch(lambda: ARCHITECTURES), help=f"Target architecture: {', '.join(ARCHITECTURES)}."),
    click.option("--model", default="", metavar="MODEL", help="Model directory, or hub id ORG/NAME[@REV]. Required for a server."),
    click.option("--gpu", default="", metavar="NAME", help='GPU product that must be found, like "NVIDIA H200".'),
    click.option("--served-model", default="", metavar="STRING", help="Model string that the production server gets; part of its cache key."),
    click.option("--profile", default="default", show_default=True, metavar="NAME|FILE", help="Warm-up profile."),
    click.option("--base", default="", metavar="REF", help="Base image: scratch or oci:DIR[:TAG].  [default: scratch for executor local]"),
    click.option("--output", default="", metavar="oci:DIR[:TAG]", help="Where the image goes.  [default: oci:./SET-PLAN]"),
    click.option("--runtime", default="vllm", show_default=True, type=door("runtimes"), help="Server program to warm."),
    click.option("--engine", default="oci", show_default=True, type=door("engines"), help="How images are read and written."),
    click.option("--executor", default="local", show_default=True, type=door("executors"), help="Where the server is started."),
    click.option("--weights", default="real", show_default=True, type=fixed("real", "dummy"), help="Load the weights, or random ones."),
    click.option("--keep-ir", is_flag=True, help="Keep the compilers' IR and PTX, in a layer of their own: eight times the bytes, for people only."),
    click.option("--compression", default="gzip", show_default=True, type=fixed("gzip", "zstd"), help="Of the layers."),
    click.option("--root", default=DEFAULT_ROOT, show_default=True, metavar="DIR", help="Directory of the caches in the image."),
    click.option("--set", "set_name", default="", metavar="NAME", help="Name of the cache set.  [default: from --arch and GPU]"),
    click.option(
        "--work", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Work directory.  [default: in the state directory]"
    ),
    click.option("--python", default="", metavar="EXE", help="The server's interpreter.  [default: the one that runs baker]"),
    click.option("--no-prove", "prove", is_flag=True, flag_value=False, default=True, help="Leave the image unproven; it is labelled so."),
    click.option("--try-all", is_flag=True, help="Bake with every strategy and keep the fastest that proves."),
    click.option("--force", is_flag=True, help="Build even if this very image exists."),
    click.option("--virtual", is_flag=True, help="EXPERIMENTAL: bake on a stand-in driver, without the GPU; never proven."),
    click.option("--allow-partial", is_flag=True, help="Leave damaged cache files out instead of failing (exit 5)."),
)


def request_options(function: Function) -> Function:
    """Decorator: adds the shared options; the function gets them as one keyword argument `request`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        names = BuildRequest.__dataclass_fields__
        request = BuildRequest(**{name: kwargs.pop(name) for name in names if name in kwargs})
        return function(*args, request=check(request), **kwargs)

    decorated: Function = call
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def assignments(items: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` items as a mapping. Raises UsageError."""
    for item in items:
        name, equals, _ = item.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(
                f"{item!r} is no variable", code="bad-variable", found=item, expected="NAME=VALUE", remedy="name the variable and its value"
            )
    return dict(item.partition("=")[::2] for item in items)


def check(request: BuildRequest) -> BuildRequest:
    """Refuse options that contradict each other, and a server without a model. Raises UsageError."""
    if not request.model and request.runtime != "command":
        remedy = "pass --model with a directory or ORG/NAME"
        expected = f"a model for runtime {request.runtime}"
        raise UsageError("Missing option '--model'", code="usage", found="no --model", expected=expected, remedy=remedy)
    if request.gpu and request.arch == "cpu":
        raise UsageError(
            "--gpu makes no sense with --arch cpu", code="conflict", found=f"--gpu {request.gpu}", expected="no --gpu", remedy="drop one of the two"
        )
    if request.virtual and request.arch == "cpu":
        raise UsageError("--virtual makes no sense with --arch cpu", code="conflict", found="--virtual", expected="a GPU target", remedy="drop it")
    if request.try_all and not request.prove:
        raise UsageError(
            "--try-all needs the proof that --no-prove leaves out",
            code="conflict",
            found="--try-all --no-prove",
            expected="one of them",
            remedy="drop one of the two",
        )
    return request
