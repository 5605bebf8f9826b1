"""Resolve once, then only read: a request becomes a Plan in which nothing floats.

plan.id is the sha256 of canonical JSON over what decides the caches (design 5.6): schema, requested target, base (scratch: interpreter, Python,
distributions), root, runtime, model, serve argv without transport, profile content, added environment. Strategy, found product, driver, port, outputs
and secrets stay out. The order of the checks is the order of their price: words, GPU, profile, interpreter, model.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from baker import __version__, hub, machine, plancheck, profiles
from baker import virtual as virtuals
from baker.caches import by_name
from baker.engines.base import Engine
from baker.errors import MachineError, UsageError
from baker.executors.base import Executor
from baker.inside import choose
from baker.inside.manifest import Manifest, canonical
from baker.pack import shape
from baker.pack.image import creation_time
from baker.request import BuildRequest
from baker.runtimes.base import Runtime
from baker.spec import Entry, Interpreter, Model, Plan, Profile, Target, parse_arch, split_transport

SCHEMA = 1
NO_MODEL = Model(source="", path=Path("/"), served="")  # of a program that names its own


def resolve(request: BuildRequest, runtime: Runtime, executor: Executor, engine: Engine, *, look_for_gpu: bool = True) -> Plan:
    """Resolve everything floating. Raises UsageError, MachineError or WarmupError (model); starts nothing and downloads no weights."""
    target = Target(parse_arch(request.arch), request.gpu)
    root, set_name = plancheck.root(request.root), plancheck.set_name(request.set_name)
    creation_time(os.environ)  # a bad SOURCE_DATE_EPOCH is told now, not when the layers are written
    found = machine.require_gpu(target, executor, request.virtual) if look_for_gpu else {}
    # `plan` needs no GPU: --virtual says which kind of bake is meant.
    virtual = str(found.get("virtual") or "") if look_for_gpu else (virtuals.CROSS if request.virtual else "")
    profile = profiles.load(request.profile)
    plancheck.variables(profile.env)
    base = engine.resolve(_base(request))
    interpreter = inspect_interpreter(_python(request.python), executor)
    version = runtime.version(interpreter)
    runtime.require(interpreter, target)
    machine.require_driver(found, interpreter)
    model = hub.resolve(request.model, request.served_model or None, request.weights) if request.model or not runtime.once else NO_MODEL
    extra, transport = split_transport((*profile.serve, *request.serve), runtime.transport())
    serve = runtime.serve(model, target, extra)
    base_env = dict(item.partition("=")[::2] for item in (base.config.get("config") or {}).get("Env") or [] if not item.startswith("PATH="))
    # What the server inherits and hashes (CUDA_HOME) goes into the image too: else production would miss, silently.
    watched = runtime.neutral(version, target, "")["watched"]
    inherited = {n: v for n, v in executor.environment().items() if n not in base_env and any(fnmatchcase(n, pattern) for pattern in watched)}
    lean = {} if request.keep_ir else {name: value for kind in runtime.kinds(target) for name, value in by_name(kind).lean.items()}
    env = {**inherited, **lean, **profile.env, **runtime.environment(model, target)}
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "target": {"arch": target.arch, "product": target.product},
        "base": base.digest or _scratch_identity(interpreter),
        "root": root,
        "runtime": runtime.name,
        "model": model.identity(),
        "serve": list(serve),
        "profile": profile.document(),
        "env": dict(sorted(env.items())),
        **({"virtual": virtual} if virtual else {}),
        **({"program": program} if (program := dict(runtime.files(serve))) else {}),
    }
    plancheck.document(document)
    plan_id = hashlib.sha256(canonical(document)).hexdigest()
    plan = Plan(
        id=plan_id,
        document=document,
        target=target,
        model=model,
        profile=profile,
        interpreter=interpreter,
        root=root,
        base=base.reference,
        runtime=runtime.name,
        serve=serve,
        env=env,
        base_env=base_env,
        weights=request.weights,
        set_name=set_name or Target(target.arch, target.product or str(found.get("gpu.name") or "")).set_name,
        transport=transport,
    )
    script = runtime.script(plan, profile)
    extended = {
        "id": plan_id,
        "baker": __version__,
        "base_reference": base.reference,
        "base_env": base_env,
        "version": version,
        "interpreter": interpreter_document(interpreter),
        "source": model.source,
        "served": model.served,
        "weights": request.weights,
        "set": plan.set_name,
        "offline": env.get("HF_HUB_OFFLINE") == "1",
        "uncovered": list(script.uncovered),
    }
    plancheck.document(extended)
    return replace(plan, document={**document, **extended}, uncovered=script.uncovered)


_ENTRY = {"name!": str, "batch!": int, "input!": int, "output!": int, "requests!": int}
_PLAN: Mapping[str, Any] = {
    **{f"{name}!": str for name in ("id", "source", "served", "root", "base_reference", "runtime", "weights", "set")},
    **{f"{name}!": [str] for name in ("serve", "uncovered")},
    **{f"{name}!": shape.TEXTS for name in ("env", "base_env")},
    "target!": {"arch!": str, "product!": str},
    "model!": {"repo": str, "commit": str, "files": dict},
    "profile!": {"name!": str, "entries!": [_ENTRY], "serve!": [str], "env!": shape.TEXTS},
    "interpreter!": {
        **{f"{name}!": str for name in ("executable", "version", "abi", "magic")},
        **{f"{name}!": [str] for name in ("path", "dist_info")},
        "packages!": shape.TEXTS,
    },
}


def choose_set(manifest: Manifest, name: str, executor: Executor) -> str:
    """The set to prove: `name`, or the one that `start` would pick on this machine. Raises UsageError, MachineError."""
    names = [cache_set.name for cache_set in manifest.sets]
    if name:
        if name not in names:
            raise UsageError(f"no set {name!r} in this image", code="no-such-set", found=name, expected=", ".join(names), remedy="pass one of them")
        return name
    if len(names) == 1:
        return names[0]
    wanted = choose.wanted_facts(manifest)
    facts = executor.probe({"names": wanted, "python": sys.executable}) if wanted else {}
    choice = choose.pick_set(manifest, facts, ())
    if choice.cache_set is None:
        finding = choice.findings[0]
        raise MachineError(
            finding.message, code=finding.code, found=str(finding.found), expected=", ".join(names), remedy="pass --set, or prove on its machine"
        )
    return choice.cache_set.name


def from_manifest(document: Mapping[str, Any], served: Path | None = None) -> Plan:
    """The plan of an image, for a proof of that image: read from the manifest, nothing resolved anew but the model's files on this machine.

    Raises ArtifactError for a plan that is none.
    """
    shape.require(document, _PLAN, "the manifest's plan")
    if document["source"] and not {"commit", "files"} & {name for name, value in document["model"].items() if value}:
        shape.require(document["model"], {"files!": dict}, "the manifest's model")
    interpreter = document["interpreter"]
    profile = document["profile"]
    _require_program(document.get("program") or {})
    entries = tuple(Entry(**{name: entry[name] for name in Entry.__dataclass_fields__}) for entry in profile["entries"])
    named = bool(document["source"])
    model = hub.locate(document["model"], document["source"], document["served"], served) if named else NO_MODEL
    return Plan(
        id=document["id"],
        document=document,
        target=Target(document["target"]["arch"], document["target"]["product"]),
        model=model,
        profile=Profile(profile["name"], "", entries, tuple(profile["serve"]), profile["env"]),
        interpreter=Interpreter(
            interpreter["executable"],
            interpreter["version"],
            interpreter["abi"],
            tuple(interpreter["path"]),
            interpreter["packages"],
            tuple(interpreter["dist_info"]),
            interpreter["magic"],
        ),
        root=document["root"],
        base=document["base_reference"],
        runtime=document["runtime"],
        serve=tuple(document["serve"]),
        env=document["env"],
        base_env=document["base_env"],
        weights=document["weights"],
        set_name=document["set"],
        uncovered=tuple(document["uncovered"]),
    )


def _require_program(files: Mapping[str, str]) -> None:
    """Raise UsageError when a file that the command runs is not the one that was baked."""
    for path, sha in files.items():
        try:
            here = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except OSError as error:
            here = str(error.strerror)
        if here != sha:
            raise UsageError(
                f"{path} is not the program that was baked",
                code="program-differs",
                found=here,
                expected=sha,
                remedy="prove with the program of the bake, or build again",
            )


def _python(text: str) -> str:
    """Absolute path of the interpreter; links stay, because a virtual environment is one."""
    found = shutil.which(text or sys.executable)
    if found is None:
        raise MachineError(
            f"no such interpreter: {text}", code="no-interpreter", found=text, expected="an executable Python", remedy="pass --python EXE"
        )
    return os.path.abspath(found)  # noqa: PTH100 - Path.resolve would follow the link


def _base(request: BuildRequest) -> str:
    if request.base:
        return request.base
    if request.executor == "local":
        return "scratch"
    raise UsageError(
        "--base is required", code="no-base", found="no --base", expected="a reference", remedy="pass --base REF, or use --executor local"
    )


def inspect_interpreter(python: str, executor: Executor) -> Interpreter:
    """What the server's interpreter is and has, read from its files. Raises MachineError."""
    names = ["executable", "version", "abi", "magic", "path", "packages", "dist_info"]
    facts = executor.probe({"names": [f"python.{name}" for name in names], "python": python, "site": True})
    # An interpreter without a single distribution is whole; the runtime says what it misses there.
    missing = [name for name in names if not facts.get(f"python.{name}") and name not in ("packages", "dist_info")]
    if missing:
        raise MachineError(
            f"{python} does not tell its {', '.join(missing)}",
            code="no-interpreter",
            found=str(facts.get("unknown")),
            expected="a CPython 3.9 or newer",
            remedy="pass --python",
        )
    return Interpreter(
        str(facts["python.executable"]),
        str(facts["python.version"]),
        str(facts["python.abi"]),
        tuple(facts["python.path"]),
        {name: version if isinstance(version, str) else " and ".join(version) for name, version in (facts.get("python.packages") or {}).items()},
        tuple(facts.get("python.dist_info") or ()),
        str(facts["python.magic"]),
    )


def interpreter_document(interpreter: Interpreter) -> dict[str, Any]:
    """As it stands in the manifest."""
    return {
        "executable": interpreter.executable,
        "version": interpreter.version,
        "abi": interpreter.abi,
        "path": list(interpreter.path),
        "packages": dict(interpreter.packages),
        "dist_info": list(interpreter.dist_info),
        "magic": interpreter.magic,
    }


def _scratch_identity(interpreter: Interpreter) -> dict[str, Any]:
    return {
        "interpreter": interpreter.executable,
        "python": interpreter.version,
        "packages": [f"{name}=={version}" for name, version in sorted(interpreter.packages.items())],
    }
