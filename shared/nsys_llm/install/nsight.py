"""Where Nsight Systems lies, which version it is, and which Python its recipes run in.

Standard library only: install.py loads this from the checkout, before anything is installed.
"""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsys_llm.core.errors import UsageError

#: Where its packages install it, one folder a version.
INSTALLED: Final = ("/opt/nvidia/nsight-systems", "/opt/nvidia/nsight-systems-cli")
#: Where releases from 2026.3 on keep the environment that they run recipes in.
OWN_VENV: Final = "~/.nsightsystems/venv/bin/python"

_RECIPES: Final = Path("python", "packages", "nsys_recipe", "recipes")


@dataclass(frozen=True)
class NsightSystems:
    """One installation.

    Attributes:
        version: Such as `2023.4.4.54`; empty if its nsys does not say.
    """

    target: Path
    version: str

    @property
    def packages(self) -> Path:
        """Return the folder that it puts first on the path of the Python that it runs."""
        return self.target / "python" / "packages"

    @property
    def name(self) -> str:
        """Return what to call it in a message."""
        return f"Nsight Systems {self.version or 'of unknown version'}"

    @property
    def has_own_python(self) -> bool:
        """Return whether it runs recipes in an environment of its own, not in the PATH's Python."""
        return tuple(int(part) for part in self.version.split(".")[:2] if part) >= (2026, 3)

    def python(self) -> tuple[str | None, str]:
        """Return the executable that runs recipes, if there is one, and how it was told."""
        if not self.has_own_python:
            return shutil.which("python3"), "python3 on PATH"
        if given := os.environ.get("NSYSPYTHONEXE"):
            return shutil.which(given), "NSYSPYTHONEXE"
        return shutil.which(os.path.expanduser(OWN_VENV)), f"its own environment, {OWN_VENV}"


def locate(given: str | None) -> NsightSystems:
    """Return the Nsight Systems to use.

    Args:
        given: Its folder, the `bin` or `target-*` in that, or its nsys. Otherwise it is the one
            whose `nsys` is on PATH, else the newest below `/opt/nvidia`.

    Raises:
        UsageError: There is none, or it has no recipes.
    """
    if given:
        if target := _target(Path(given).expanduser()):
            return NsightSystems(target, _version(target))
        raise UsageError(f"{given}: no Nsight Systems with recipes there (2023.4 or newer)")
    if nsight := next(find_all(), None):
        return nsight
    raise UsageError(
        "no Nsight Systems with recipes found, neither by `nsys` on PATH nor below /opt/nvidia; "
        "name its folder: --nsys DIR"
    )


def find_all() -> Iterator[NsightSystems]:
    """Yield every Nsight Systems that can be found, the one to use first."""
    candidates = [on_path] if (on_path := shutil.which("nsys")) else []
    versions = [path for folder in INSTALLED for path in glob.glob(f"{folder}/*")]
    candidates += sorted(versions, key=_numbers, reverse=True)
    seen = set()
    for candidate in candidates:
        target = _target(Path(candidate))
        if target and target not in seen:
            seen.add(target)
            yield NsightSystems(target, _version(target))


def _target(path: Path) -> Path | None:
    """Return the folder `target-*` that a path belongs to, if that has recipes."""
    path = path.resolve()
    folder = path.parent if path.is_file() else path
    roots = [folder, folder.parent] if path.is_file() or folder.name == "bin" else [folder]
    for root in roots:
        if (root / _RECIPES).is_dir():
            return root
        targets = [
            target for target in sorted(root.glob("target-*")) if (target / _RECIPES).is_dir()
        ]
        machine = "x64" if platform.machine() in ("x86_64", "AMD64") else "armv8"
        if targets:
            return next((target for target in targets if machine in target.name), targets[0])
    return None


def _version(target: Path) -> str:
    try:
        done = subprocess.run(
            [str(target / "nsys"), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"version (\d+(?:\.\d+)*)", done.stdout)
    return match[1] if match else ""


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", os.path.basename(path))]
