"""Machines of the bed: a folder with the stand-in driver and its settings, and the swap of NVIDIA's libraries in the bed's own environment.

`python -m tests.vgpu.machines install SITE_PACKAGES LIBRARIES`, `… uninstall SITE_PACKAGES LIBRARIES`,
`… make LIBRARIES FOLDER [--profile h100] [--driver V] [--cuda V] [--count N] [--fault NAME]`.

torch's libraries carry RPATH, so libcudart, cuBLAS and NCCL are replaced where the wheels put them (the real ones stay beside them as `NAME.nvidia`).
libcuda.so.1 and libnvidia-ml.so.1 are the driver's: they come from the folder that stands first on LD_LIBRARY_PATH, which is the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
REAL = ".nvidia"
PROFILES = ("a100", "l40s", "h100", "h100pcie", "h100mig", "h200", "b200", "rtx6000b")
FAULTS = ("", "nodevice", "error803", "error804", "oom", "busy", "hang")


def machine(bed: Path, into: Path, *, profile: str = "h100", driver: str = "580.95.05", cuda: str = "13.0", count: int = 1, fault: str = "") -> Path:
    """Make the folder `into` from the libraries in `bed`; returns it, absolute. Raises ValueError for a profile or fault that the library ignores."""
    if profile not in PROFILES or fault not in FAULTS:
        raise ValueError(f"profile {profile!r}, fault {fault!r}: expected one of {', '.join(PROFILES)} and one of {', '.join(FAULTS[1:])}")
    into.mkdir(parents=True, exist_ok=True)
    for name in DRIVER:
        _replace(bed / name, into / name)
    link = into / "libcuda.so"
    if not link.is_symlink():
        link.symlink_to("libcuda.so.1")
    settings = {"VGPU": profile, "VGPU_DRIVER": driver, "VGPU_CUDA": cuda, "VGPU_COUNT": str(count), "VGPU_FAULT": fault}
    (into / "vgpu.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items() if value))
    return into.resolve()


def _replace(source: Path, target: Path) -> None:
    """Copy by a rename: a library that is mapped somewhere must not change under it."""
    new = target.with_name(target.name + ".new")
    shutil.copy2(source, new)
    new.rename(target)


def _pairs(site: Path, bed: Path) -> Iterator[tuple[Path, Path]]:
    """(stand-in, place in the wheels) of each library that is no driver library."""
    for stand_in in sorted(bed.glob("lib*.so.*")):
        if stand_in.name in DRIVER or stand_in.suffix == ".new":
            continue
        for place in sorted((site / "nvidia").rglob(stand_in.name)):
            yield stand_in, place


def install(site: Path, bed: Path) -> list[str]:
    """Put the stand-ins in the wheels' places; returns what is replaced now. Running it again only renews them."""
    done = []
    for stand_in, place in _pairs(site, bed):
        kept = place.with_name(place.name + REAL)
        if not kept.exists():
            os.link(place, kept)
        _replace(stand_in, place)
        done.append(str(place.relative_to(site)))
    return done


def uninstall(site: Path, bed: Path) -> list[str]:
    """Put NVIDIA's own libraries back; returns what was restored."""
    done = []
    for _, place in _pairs(site, bed):
        kept = place.with_name(place.name + REAL)
        if kept.exists():
            kept.rename(place)
            done.append(str(place.relative_to(site)))
    return done


def main() -> None:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(description="Machines of the virtual GPU bed.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("install", "uninstall"):
        command = commands.add_parser(name)
        command.add_argument("site", type=Path)
        command.add_argument("bed", type=Path)
    make = commands.add_parser("make")
    make.add_argument("bed", type=Path)
    make.add_argument("into", type=Path)
    make.add_argument("--profile", default="h100", choices=PROFILES)
    make.add_argument("--driver", default="580.95.05")
    make.add_argument("--cuda", default="13.0")
    make.add_argument("--count", type=int, default=1)
    make.add_argument("--fault", default="", choices=FAULTS)
    given = vars(parser.parse_args())
    command = given.pop("command")
    if command == "make":
        print(machine(given.pop("bed"), given.pop("into"), **given))
    else:
        print("\n".join((install if command == "install" else uninstall)(given["site"], given["bed"])) or "nothing to do")


if __name__ == "__main__":
    main()
