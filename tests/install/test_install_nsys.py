"""install.py beside a synthetic Nsight Systems: it touches what it wrote, and nothing else."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from installing import ROOT, assert_told, fake_pip, install, installer

from nsys_llm.core.errors import UsageError
from nsys_llm.core.needed import requirements
from nsys_llm.install import placement
from nsys_llm.install.nsight import locate
from nsys_llm.install.placement import RECORD
from nsys_llm.manifest.manifest import recipe_names

NOBODY = 65534
SCRIPT = "nsys_recipe/recipes/llm_hotspots/llm_hotspots.py"


def make_nsight(folder: Path, version: str = "2023.4.4.54") -> Path:
    target = folder / "target-linux-x64"
    builtin = target / "python/packages/nsys_recipe/recipes/diff"
    builtin.mkdir(parents=True)
    (builtin / "metadata.json").write_text("{}")
    (target / "nsys").write_text(f"#!/bin/sh\necho NVIDIA Nsight Systems version {version}-1v0\n")
    (target / "nsys").chmod(0o755)
    (folder / "bin").mkdir()
    (folder / "bin/nsys").symlink_to("../target-linux-x64/nsys")
    return folder


@pytest.fixture
def nsight(tmp_path):
    return make_nsight(tmp_path / "nsight")


@pytest.fixture
def packages(nsight):
    return nsight / "target-linux-x64/python/packages"


@pytest.fixture
def checkout(tmp_path):
    """A copy of all that is placed, with a version to change."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    files = ("install.py", "pyproject.toml", "setup.py", "LICENSE")
    for name in (*files, "shared", "recipes", "manifests"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    return folder


def set_version(checkout: Path, version: str) -> None:
    for name in ("shared/nsys_llm/__init__.py", "recipes/llm_hotspots/llm_hotspots.py"):
        text = (checkout / name).read_text()
        assert '"1.0.0"' in text
        (checkout / name).write_text(text.replace('"1.0.0"', f'"{version}"'))


def assert_done(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    for word in words:
        assert word in done.stdout


def listing(folder: Path) -> dict[str, str]:
    """Return every folder, file and link below a folder with what it holds and who may read it."""
    entries = {}
    for path in folder.rglob("*"):
        content = os.readlink(path) if path.is_symlink() else ""
        if path.is_file() and not path.is_symlink():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        entries[path.relative_to(folder).as_posix()] = f"{path.lstat().st_mode:o} {content}"
    return entries


def placed_version(packages: Path) -> str:
    """Ask a Python that has nothing else of ours."""
    code = "import nsys_llm; print(nsys_llm.__version__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "place", ["", "bin", "bin/nsys", "target-linux-x64", "target-linux-x64/nsys"]
)
def test_nsight_systems_is_found_by_any_part_of_it(nsight, place):
    located = locate(str(nsight / place))
    assert (located.target, located.version) == (nsight / "target-linux-x64", "2023.4.4.54")


def test_without_a_folder_it_is_the_nsys_on_path_through_links_else_the_newest(
    nsight, tmp_path, monkeypatch
):
    for version in ("2023.4.4", "2024.10.1", "2024.9.1"):
        make_nsight(tmp_path / "opt" / version, version)
    monkeypatch.setattr("nsys_llm.install.nsight.INSTALLED", (str(tmp_path / "opt"),))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert locate(None).version == "2024.10.1"
    (tmp_path / "nsys").symlink_to(nsight / "bin/nsys")
    assert locate(None).target == nsight / "target-linux-x64"


def test_a_folder_without_nsight_systems_is_one_line(tmp_path, nsight):
    assert_told(install("--nsys", tmp_path, folder=tmp_path), 2, "no Nsight Systems with recipes")
    inner = nsight / "target-linux-x64/python"
    assert_told(install("--nsys", inner, folder=tmp_path), 2, "no Nsight Systems with recipes")


def test_it_places_all_that_is_imported_and_takes_exactly_that_away(nsight, packages, tmp_path):
    before = listing(nsight)
    old_umask = os.umask(0o077)
    try:
        assert_done(install("--nsys", nsight, folder=tmp_path), "placed nsys-llm-recipes 1.0.0")
    finally:
        os.umask(old_umask)
    new = listing(nsight).keys() - before.keys()
    sources = {
        f"nsys_llm/{below}{path.relative_to(ROOT / part).as_posix()}"
        for part, below in {
            "shared/nsys_llm": "",
            "recipes": "recipes/",
            "manifests": "manifests/",
        }.items()
        for path in (ROOT / part).rglob("*")
        if path.suffix in (".py", ".json", ".typed", ".css", ".js")
    }
    files = {
        f"nsys_recipe/recipes/{recipe}/{name}"
        for recipe in recipe_names()
        for name in ("__init__.py", "metadata.json", f"{recipe}.py")
    }
    files |= {placement.RECORD} | sources
    placed = {path for path in new if (nsight / path).is_file()}
    assert {
        Path(path).relative_to(packages.relative_to(nsight)).as_posix() for path in placed
    } == files
    assert all((nsight / path).stat().st_mode & 0o044 == 0o044 for path in new)
    record = json.loads((packages / placement.RECORD).read_text())
    assert set(record["files"]) == files - {placement.RECORD}

    for folder in (packages / "nsys_llm/install", (packages / SCRIPT).parent):
        assert compileall.compile_dir(folder, quiet=1)
    assert (packages / "nsys_llm/install/__pycache__").is_dir()
    again = install("--nsys", nsight, "--quiet", folder=tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert listing(nsight).keys() - before.keys() == new
    # Alone it finds what PATH leads to.
    variables = {"PATH": str(nsight / "bin")}
    assert_done(
        install("--uninstall", folder=tmp_path, **variables),
        f"removed nsys-llm-recipes from {packages}",
    )
    assert listing(nsight) == before
    assert_done(install("--uninstall", folder=tmp_path, **variables), "found nothing to remove")
    assert_done(install("--uninstall", "--nsys", nsight, folder=tmp_path), "nothing to remove in")


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("gcc"), reason="no compiler")
def test_the_library_that_this_run_built_is_placed_used_and_taken_away(
    nsight, packages, checkout, tmp_path
):
    before = listing(nsight)
    beside = "nsys_llm/profile/sqlite"
    (checkout / "shared" / beside / "_leaf.so").write_bytes(b"stale")
    offline = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
    words = ("--nsys", nsight)
    assert_done(
        install(*words, module=installer(checkout), folder=tmp_path, NSYS_LLM_NATIVE="", **offline)
    )
    (library,) = (packages / beside).glob("*.so")
    assert library.name == f"_leaf-{platform.machine()}.so"
    assert f"{beside}/{library.name}" in json.loads((packages / RECORD).read_text())["files"]
    code = "from nsys_llm.profile.sqlite.pages import decoder; print(decoder())"
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    command = [sys.executable, "-B", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "native\n", done.stderr
    assert_done(install("--uninstall", *words, folder=tmp_path), "removed")
    assert listing(nsight) == before


@pytest.mark.parametrize("name", ["nsys_llm/mine.py", SCRIPT])
def test_what_it_did_not_write_is_never_replaced(nsight, packages, tmp_path, name):
    (packages / name).parent.mkdir(parents=True)
    (packages / name).write_text("mine")
    before = listing(nsight)
    done = install("--nsys", nsight, folder=tmp_path)
    assert_told(done, 2, name, "was not written by install.py; move it away")
    assert listing(nsight) == before


def test_an_added_file_is_in_the_way_and_is_kept_and_named(nsight, packages, tmp_path):
    assert_done(install("--nsys", nsight, folder=tmp_path))
    (packages / "nsys_llm/notes.txt").write_text("mine")
    before = listing(nsight)
    done = install("--nsys", nsight, folder=tmp_path)
    assert_told(done, 2, "nsys_llm/notes.txt", "was not written")
    assert listing(nsight) == before
    done = install("--uninstall", "--nsys", nsight, folder=tmp_path)
    assert_told(done, 1, "kept", "nsys_llm/notes.txt")
    left = {path.name for path in packages.rglob("*") if path.is_file()}
    assert left == {"notes.txt", "metadata.json", RECORD}
    assert not (packages / SCRIPT).with_name("metadata.json").exists()
    # What was kept is not forgotten: it is named again, until it is gone.
    before = listing(nsight)
    done = install("--uninstall", "--nsys", nsight, folder=tmp_path)
    assert_told(done, 1, "kept", "nsys_llm/notes.txt")
    assert listing(nsight) == before
    (packages / "nsys_llm/notes.txt").unlink()
    assert_done(install("--uninstall", "--nsys", nsight, folder=tmp_path), "removed")
    assert not (packages / RECORD).exists()
    assert not (packages / "nsys_llm").exists()


def test_an_older_version_is_replaced_whole_and_a_newer_one_refused(
    nsight, packages, checkout, tmp_path
):
    (checkout / "shared/nsys_llm/of_old.py").touch()
    for stale in ("shared/nsys_llm/build/stale.py", "recipes/.stale.py"):
        (checkout / stale).parent.mkdir(exist_ok=True)
        (checkout / stale).touch()
    assert_done(install("--nsys", nsight, module=installer(checkout), folder=tmp_path))
    assert not [path for path in packages.rglob("*stale.py")]
    assert (packages / "nsys_llm/of_old.py").is_file()
    (checkout / "shared/nsys_llm/of_old.py").unlink()
    set_version(checkout, "1.10.0")
    done = install("--nsys", nsight, module=installer(checkout), folder=tmp_path)
    assert_done(done, "placed nsys-llm-recipes 1.10.0, in place of 1.0.0")
    assert not (packages / "nsys_llm/of_old.py").exists()
    assert placed_version(packages) == "1.10.0"
    assert 'version="1.10.0"' in (packages / SCRIPT).read_text()

    before = listing(nsight)
    assert_told(install("--nsys", nsight, folder=tmp_path), 2, "1.10.0", "this is 1.0.0")
    assert listing(nsight) == before


def sources_of(folder: Path, text: str) -> dict[str, dict[str, Path]]:
    folder.mkdir()
    (folder / "a.py").write_text(text)
    return {"first": {"a.py": folder / "a.py"}, "second": {"b/a.py": folder / "a.py"}}


KILLED = """
import os, pathlib, sys
from nsys_llm.install.placement import place
n, real = int(sys.argv[3]), os.rename
def rename(*words):
    global n
    n -= 1
    os._exit(9) if n < 0 else real(*words)
os.rename = rename
source = pathlib.Path(sys.argv[2])
place(pathlib.Path(sys.argv[1]), {"first": {"a.py": source}, "second": {"b/a.py": source}}, "2.0")
"""


@pytest.mark.parametrize("n", range(2))
def test_after_a_kill_the_next_call_goes_on(tmp_path, n):
    old, new = sources_of(tmp_path / "1", "old"), sources_of(tmp_path / "2", "new")
    root = tmp_path / "root"
    root.mkdir()
    before = listing(root)
    placement.place(root, old, "1.0")
    source = str(new["first"]["a.py"])
    done = subprocess.run([sys.executable, "-c", KILLED, root, source, str(n)])
    assert done.returncode == 9
    copy = shutil.copytree(root, tmp_path / "copy")
    assert placement.remove(copy) == []
    assert listing(copy) == before
    placement.place(root, new, "2.0")
    assert (root / "first/a.py").read_text() == (root / "second/b/a.py").read_text() == "new"
    assert {path.name for path in root.iterdir()} == {"first", "second", placement.RECORD}


#: Runs install.py as another user, to whom Python's own library may be closed: it is loaded before.
AS_NOBODY = f"""
import os, sys
sys.path.insert(0, sys.argv.pop(1))
import install
for module in ("install.steps", "install.check"):
    install._ours(module, "Path", ".")
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
sys.exit(install.main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user's place")
def test_an_ordinary_user_is_told_what_to_do_instead(nsight, checkout):
    # The folders of pytest are closed to other users.
    base = Path(tempfile.mkdtemp(prefix="nsys-llm-test-"))
    home = base / "home"
    try:
        shutil.copytree(nsight, base / "nsight", symlinks=True)
        shutil.copytree(checkout, base / "checkout")
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        base.chmod(0o755)

        def as_nobody(*words):
            command = [sys.executable, "-B", "-c", AS_NOBODY, base / "checkout", *map(str, words)]
            return subprocess.run(command, cwd=home, capture_output=True, text=True)

        before = listing(base)
        advice = "--venv .venv, which says how to set NSYS_RECIPE_PATH"
        assert_told(as_nobody("--nsys", base / "nsight"), 2, "no permission to write", advice)
        assert listing(base) == before
        assert_done(install("--nsys", base / "nsight", folder=home))
        with_it = listing(base)
        removal = as_nobody("--uninstall", "--nsys", base / "nsight")
        assert_told(removal, 2, "no permission to write")
        assert listing(base) == with_it
    finally:
        shutil.rmtree(base)


def fake_python(folder: Path, **answer: object) -> str:
    """Make a python3 that answers --check; return a PATH with it alone."""
    folder.mkdir()
    path = folder / "python3"
    oldest = {name: oldest for name, (oldest, _) in requirements().items()}
    packages = oldest | answer.pop("packages", {})
    answer = {"ours": None, "decoder": "adbc", "packages": packages, **answer}
    answer = {"version": [3, 11, 7], "takes": True, **answer}
    path.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    path.chmod(0o755)
    return str(folder)


OURS = ["1.0.0", "/site/nsys_llm"]
CHECKS = {
    "ready": ({"ours": OURS}, True, 0, ["ready: ", "in it: 1.0.0", "14.0.1\n", "pages: adbc,"]),
    "compiled": ({"ours": OURS, "decoder": "native"}, True, 0, ["of SQLite pages: native\n"]),
    "not placed": ({"ours": OURS}, False, 1, ["in it: none", "install.py --nsys"]),
    "no package": ({}, False, 1, ["nsys_llm: missing", "fix it: python3 install.py --nsys"]),
    "missing": (
        {"ours": OURS, "packages": {"pyarrow": None}}, True, 1,
        ["pyarrow: missing", "/python3 install.py --current"],
    ),
    "too old": (
        {"ours": OURS, "packages": {"pyarrow": "9.0"}, "takes": False}, True, 1,
        ["pyarrow: 9.0, needs 14.0.1 or newer", "&& source .venv/bin/activate"],
    ),
    "too new": (
        {"ours": OURS, "packages": {"pandas": "4.0.1"}}, True, 1,
        ["pandas: 4.0.1, needs a version below 4\n", "/python3 install.py --current"],
    ),
    "mixed": ({"ours": ["0.0.9", "/site/nsys_llm"]}, True, 1, ["which 0.0.9 refuses"]),
    "3.12": ({"ours": OURS, "version": [3, 12, 1]}, True, 0, ["ours: yes"]),
    "3.9": ({"version": [3, 9, 1]}, True, 1, ["ours: no, needs 3.10"]),
}  # fmt: skip


@pytest.mark.nightly("compiled", "3.12", "too new")
@pytest.mark.parametrize("case", CHECKS)
def test_check_says_what_is_there_and_what_fixes_it(nsight, tmp_path, case):
    answer, placed, code, words = CHECKS[case]
    if placed:
        assert_done(install("--nsys", nsight, folder=tmp_path))
    path = fake_python(tmp_path / "python", **answer)
    done = install("--check", "--nsys", nsight, folder=tmp_path, PATH=path)
    assert (done.returncode, done.stderr) == (code, "")
    for word in words:
        assert word in done.stdout
    assert ("to fix it" in done.stdout) == bool(code)
    assert done.stdout.count("to fix it") <= 1


LACKS = {"psutil": None, "pandas": "4.0.1"}


@pytest.mark.parametrize(
    ("takes", "fix"),
    [(True, "{python} install.py --current"),
     (False, "python3 install.py --venv .venv --nsys {nsight} && source .venv/bin/activate")],
)  # fmt: skip
def test_placing_ends_with_what_the_python_lacks_and_the_command(nsight, tmp_path, takes, fix):
    path = fake_python(tmp_path / "python", packages=LACKS, takes=takes)
    done = install("--nsys", nsight, folder=tmp_path, PATH=path)
    assert_done(done)
    python = f"{path}/python3"
    assert done.stdout.splitlines()[-2:] == [
        f"{python} (python3 on PATH) lacks pandas (4.0.1, needs a version below 4), psutil",
        f"to fix it: {fix.format(python=python, nsight=nsight)}",
    ]
    path = fake_python(tmp_path / "whole", ours=OURS)
    done = install("--nsys", nsight, folder=tmp_path, PATH=path)
    assert done.stdout.splitlines()[-1] == "ready: nsys recipe llm_overview --help"


def test_a_script_that_lacks_packages_names_all_and_one_command(packages, nsight, tmp_path):
    """Of NVIDIA's loader it takes its own words: the text of the error."""
    assert_done(install("--nsys", nsight, folder=tmp_path))
    # A Python with one package of those that it needs.
    (packages / "psutil.py").touch()
    code = "import nsys_recipe.recipes.llm_overview.llm_overview"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(packages)}, capture_output=True, text=True,
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    absent = [name for name in requirements() if name != "psutil"]
    assert last.startswith(f"ImportError: {sys.executable} lacks {', '.join(absent)}; to install")
    words = shlex.split(last.partition("; to install them: ")[2])
    asked = words[words.index("install") + 1 :]
    assert {re.split("[<>]", spec)[0] for spec in asked} == set(absent)
    assert "pandas>=2.0,<4" in asked


@pytest.mark.nightly
def test_from_2026_3_on_it_is_the_python_of_nsys_that_counts(tmp_path):
    nsight = make_nsight(tmp_path / "nsight", "2026.3.1.1")
    home = {"HOME": str(tmp_path)}
    done = install("--nsys", nsight, folder=tmp_path, **home)
    assert_done(done, "not in PATH's python3", "NSYSPYTHONEXE=~/.nsightsystems/venv/bin/python")
    done = install("--check", "--nsys", nsight, folder=tmp_path, **home)
    assert "none (its own environment, ~/.nsightsystems/venv/bin/python)" in done.stdout

    python = Path(fake_python(tmp_path / "python", ours=OURS), "python3")
    home["NSYSPYTHONEXE"] = str(python)
    done = install("--check", "--nsys", nsight, folder=tmp_path, **home)
    assert_done(done, f"{python} (NSYSPYTHONEXE)")
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    assert_done(install("--nsys", nsight, folder=tmp_path, **home), f"recipes in {python}")
    assert "-m pip" in (tmp_path / "told").read_text()
    assert " install " in (tmp_path / "told").read_text()


def test_find_links_gives_pip_the_wheels_and_no_network(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "other.whl").touch()
    body = "import os, sys\nwheels = sys.argv[sys.argv.index('--find-links') + 1]\n"
    body += f"open({str(tmp_path / 'told')!r}, 'w').write(str([sys.argv, os.listdir(wheels)]))"
    done = install(
        "--current", "--find-links", wheels, folder=tmp_path, PYTHONPATH=fake_pip(tmp_path, body)
    )
    assert_done(done)
    printed = (tmp_path / "told").read_text()
    for word in ("--no-index", "'nsys-llm-recipes'", "other.whl"):
        assert word in printed


@pytest.mark.parametrize(
    "words",
    [["--find-links", "x"], ["--current", "--find-links", ""], ["--nsys", "--demo"],
     ["--uninstall", "--check"], ["--current", "--find-links", "x", "--test"], ["--venv", ""]],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(tmp_path, words):
    done = install(*words, folder=tmp_path)
    assert_told(done, 2, "install.py: ", "--help")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "path", ["../outside", "/outside", "elsewhere/a.py", ".", "first/../../outside"]
)
def test_a_record_that_points_elsewhere_is_refused(tmp_path, path):
    root = tmp_path / "root"
    root.mkdir()
    placement.place(root, sources_of(tmp_path / "1", "old"), "1.0")
    record = json.loads((root / placement.RECORD).read_text())
    for bad in (
        {**record, "files": [path]},
        {**record, "folders": [path, "first"]} if path != "elsewhere/a.py" else {},
    ):
        (root / placement.RECORD).write_text(json.dumps(bad))
        with pytest.raises(UsageError, match="is damaged"):
            placement.remove(root)
    assert (root / "first/a.py").is_file()
