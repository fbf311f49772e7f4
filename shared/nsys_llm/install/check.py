"""What `install.py --check` says: what is there, whether a run would work, and how to fix it.

Standard library only: install.py loads this from the checkout, before anything is installed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.needed import requirements
from nsys_llm.install.nsight import NsightSystems, locate
from nsys_llm.install.placement import STAGING, Record, newer, read_record
from nsys_llm.install.steps import PACKAGE, RECIPES, checkout_version, recipe_sources

OLDEST_PYTHON: Final = (3, 10)

#: Run by the Python in question, which may be an old one: what it is, and what it has.
PROBE: Final = """
import json, os, sys
found = {"version": list(sys.version_info[:3]), "packages": {}, "ours": None, "decoder": None}
found["takes"] = False
if sys.version_info >= (3, 10):
    import importlib.metadata, sysconfig
    for name in sys.argv[1:]:
        try:
            found["packages"][name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found["packages"][name] = None
    try:
        import nsys_llm
        found["ours"] = [nsys_llm.__version__, os.path.dirname(nsys_llm.__file__)]
        from nsys_llm.profile.sqlite.pages import decoder
        found["decoder"] = decoder()
    except ImportError:
        pass
    place = sysconfig.get_path("purelib")
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    managed = sys.prefix == sys.base_prefix and os.path.exists(marker)
    found["takes"] = os.access(place, os.W_OK) and not managed
print(json.dumps(found))
"""


@dataclass
class _Report:
    """The lines to print, and the commands that fix what is missing, each once.

    `place` is the one that places everything in this Nsight Systems; `python` is the one that runs
    recipes, `unfit` the packages that it lacks or has in a wrong version.
    """

    place: str
    lines: list[str] = field(default_factory=list)
    fixes: list[str] = field(default_factory=list)
    python: str = ""
    unfit: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def needs(self, command: str) -> None:
        if command not in self.fixes:
            self.fixes.append(command)


def check(root: Path, given: str | None) -> tuple[list[str], bool]:
    """Look at everything that `nsys recipe` needs to run our recipes.

    Args:
        given: See `nsys_llm.install.nsight.locate`.

    Returns:
        Lines to print, and whether a run would work.
    """
    report = _looked(root, given)
    return [*report.lines, *_closing(report)], not report.fixes


def after_placing(root: Path, given: str | None) -> list[str]:
    """Return what `install.py --nsys` ends with: ready, or what is missing and what installs it."""
    report = _looked(root, given)
    lacks = [f"{report.python} lacks {', '.join(report.unfit)}"] if report.unfit else []
    return [*lacks, *_closing(report)]


def _looked(root: Path, given: str | None) -> _Report:
    report = _Report("python3 install.py --nsys" + (f" {shlex.quote(given)}" if given else ""))
    try:
        nsight = locate(given)
    except UsageError as error:
        report.say(f"Nsight Systems: none ({error})")
        report.needs("python3 install.py --check --nsys DIR, once Nsight Systems is installed")
        return report
    report.say(f"Nsight Systems: {nsight.version or 'of unknown version'} in {nsight.target}")
    script = _check_recipes(report, root, nsight)
    _check_python(report, root, nsight, script)
    return report


def _check_recipes(report: _Report, root: Path, nsight: NsightSystems) -> str | None:
    """Say where our recipes are; return the version of the script that nsys would load."""
    record = read_record(nsight.packages)
    state = _state(nsight.packages, record) if record else ""
    report.say(f"our recipes in it: {record.version if record else 'none'}{state}")
    if state:
        report.needs(report.place)
    folder = os.environ.get("NSYS_RECIPE_PATH", "")
    report.say(f"NSYS_RECIPE_PATH: {folder or 'not set'}")
    places = [nsight.packages / RECIPES, *([Path(folder)] if folder else [])]
    # From 2026.3 on, what NSYS_RECIPE_PATH names wins; before, what is installed.
    for place in reversed(places) if nsight.has_own_python else places:
        if scripts := _script_versions(place, root):
            report.say(f"nsys recipe finds: {', '.join(scripts)} in {place}")
            return next(iter(scripts.values()))
    report.say("nsys recipe finds: none of our recipes")
    may_write = os.access(nsight.packages, os.W_OK)
    report.needs(report.place if may_write else "python3 install.py --venv .venv, as it says")
    return None


def _state(packages: Path, record: Record) -> str:
    """Return what is wrong with what was placed in a folder, after a comma; "" if nothing is."""
    if (packages / STAGING).exists():
        return ", unfinished: an installation was interrupted"
    missing_n = sum(not (packages / name).is_file() for name in record.files)
    return f", incomplete: {missing_n} of {len(record.files)} files are missing" * bool(missing_n)


def _script_versions(place: Path, root: Path) -> dict[str, str]:
    versions = {}
    for name in recipe_sources(root):
        script = place / name / f"{name}.py"
        if script.is_file() and (place / name / "metadata.json").is_file():
            version = re.search(r'version="(.+?)"', script.read_text("utf-8", "replace"))
            versions[name] = version[1] if version else ""
    return versions


def _check_python(report: _Report, root: Path, nsight: NsightSystems, script: str | None) -> None:
    python, how = nsight.python()
    placing = report.place.partition("install.py")[2]
    anew = f"python3 install.py --venv .venv{placing} && source .venv/bin/activate"
    if nsight.has_own_python:
        anew = "nsys recipe --help, which makes the Python that it runs"
    if python is None:
        report.say(f"Python that nsys recipe runs: none ({how})")
        report.needs(anew)
        return
    report.python = f"{python} ({how})"
    needed = requirements()
    probed = _probe(python, nsight, list(needed))
    if probed is None:
        report.say(f"Python that nsys recipe runs: {python} ({how}), which does not start")
        report.needs(anew)
        return
    version = tuple(probed["version"])
    report.say(f"Python that nsys recipe runs: {'.'.join(map(str, version))}, {report.python}")
    ours = version >= OLDEST_PYTHON
    report.say(f"  runs ours: {'yes' if ours else 'no, needs 3.10 or newer'}")
    if not ours:
        newer_python = "with a python3 that is 3.10 or newer: "
        report.needs(f"{newer_python * (sys.version_info[:2] == version[:2])}{anew}")
        return
    fixes = f"{python} install.py --current" if probed["takes"] else anew
    _check_packages(report, needed, probed["packages"], fixes)
    _check_ours(report, checkout_version(root), probed["ours"], script, fixes)
    if decoder := probed["decoder"]:
        slower = ", slower: no library was built, or it is switched off" * (decoder == "adbc")
        report.say(f"  decoder of SQLite pages: {decoder}{slower}")


def _check_packages(
    report: _Report,
    needed: dict[str, tuple[str, str | None]],
    installed: dict[str, str | None],
    fixes: str,
) -> None:
    for name, (oldest, below) in needed.items():
        version, note = installed[name], ""
        if version is not None and newer(oldest, version):
            note = f", needs {oldest} or newer"
        elif version is not None and below is not None and not newer(below, version):
            note = f", needs a version below {below}"
        report.say(f"  {name}: {version or 'missing'}{note}")
        if version is None or note:
            report.unfit.append(f"{name}{note and f' ({version}{note})'}")
            report.needs(fixes)


def _check_ours(
    report: _Report, checkout: str, ours: list[str] | None, script: str | None, fixes: str
) -> None:
    """Compare the package that would be imported with the script that would import it."""
    if ours is None:
        report.say(f"  {PACKAGE}: missing")
        if report.place not in report.fixes:
            report.needs(fixes)
        return
    version, folder = ours
    report.say(f"  {PACKAGE}: {version} in {folder}")
    if script is not None and script != version:
        report.say(f"nsys finds the recipe of {script}, which {version} refuses")
        placed = Path(folder).parent.joinpath("nsys_recipe").is_dir()
        report.needs(report.place if placed or version == checkout else fixes)


def _probe(python: str, nsight: NsightSystems, names: list[str]) -> dict[str, Any] | None:
    paths = [str(nsight.packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            [python, "-B", "-c", PROBE, *names],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return answer


def _closing(report: _Report) -> list[str]:
    ready = "ready: nsys recipe llm_overview --help"
    return [f"to fix it: {command}" for command in report.fixes] or [ready]
