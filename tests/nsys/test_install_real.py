"""install.py --nsys with a real Nsight Systems: listed, run from anywhere, and gone again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from results import analyse, assert_same

from nsys_llm.manifest.manifest import load_manifest, recipe_names

pytestmark = pytest.mark.nsys

#: What runs where it is installed: recipes and modes, the first in two modes for NVIDIA's diff.
#: `llm_overview` imports what the recipes of one rank set do.
IN_CI = (
    ("llm_hotspots", "none"),
    ("llm_hotspots", "dask-futures"),
    ("llm_overview", "concurrent"),
    ("trace_diff", "none"),
)
AT_NIGHT = (
    *IN_CI,
    ("llm_hotspots", "concurrent"),
    ("tail_stats", "concurrent"),
    ("idle_gaps", "none"),
    ("nvtx_phase_attribution", "dask-futures"),
    ("step_budget", "none"),
    ("comm_stats", "none"),
    ("serving_steps", "concurrent"),
    ("roofline", "none"),
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def nsight(nsys, tmp_path_factory) -> Path:
    """A copy of the real one: its programs are links or hard links, its Python files copies."""
    target = Path(nsys).resolve().parent
    if not (target / "python/packages/nsys_recipe").is_dir():
        target = next(Path(nsys).resolve().parents[1].glob("target-*"))
    folder = tmp_path_factory.mktemp("nsight")
    copy = folder / target.name
    copy.mkdir()
    for path in target.iterdir():
        if path.name == "python":
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, copy / "python", symlinks=True, ignore=ignore)
        elif path.is_dir():
            (copy / path.name).symlink_to(path)
        else:
            # nsys looks beside itself, and would follow a link to where it came from.
            try:
                os.link(path, copy / path.name)
            except OSError:
                shutil.copy2(path, copy / path.name)
    for path in target.parent.glob("host-*"):
        (folder / path.name).symlink_to(path)
    (folder / "bin").mkdir()
    (folder / "bin/nsys").symlink_to(f"../{target.name}/nsys")
    return folder


def test_every_recipe_runs_where_it_is_installed_at_night():
    assert {recipe for recipe, _ in AT_NIGHT} == set(recipe_names())


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory) -> Path:
    """The `bin` of an environment that has all that we need, but not us."""
    folder = tmp_path_factory.mktemp("python")
    (folder / "packages").mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("nsys_llm", "__editable__", "__pycache__")):
            (folder / "packages" / path.name).symlink_to(path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    (site / "others.pth").write_text(f"{folder / 'packages'}\n")
    return folder / "venv/bin"


def run(command, folder: Path, python: Path, nsight: Path):
    # Caches must be written, for they must be removed.
    but = ("PYTHONPATH", "NSYS_RECIPE_PATH", "PYTHONDONTWRITEBYTECODE")
    variables = {name: value for name, value in os.environ.items() if name not in but}
    variables["PATH"] = os.pathsep.join([str(python), str(nsight / "bin"), "/usr/bin:/bin"])
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=variables, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def listing(folder: Path) -> dict[str, str]:
    """Return what a tree holds, but for the caches that Python makes of NVIDIA's own modules."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        if "__pycache__" not in path.parts:
            plain = path.is_file() and not path.is_symlink()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if plain else ""
            content += os.readlink(path) if path.is_symlink() else ""
            entries[path.relative_to(folder).as_posix()] = f"{path.lstat().st_mode:o} {content}"
    return entries


@pytest.mark.nightly
@pytest.mark.parametrize("runs", [IN_CI, pytest.param(AT_NIGHT, marks=pytest.mark.nightly)])
def test_install_list_run_and_uninstall(nsight, bare_python, rank_set, tmp_path, runs):
    def do(*command):
        done = run(command, elsewhere, bare_python, nsight)
        assert done.returncode == 0, done.stdout
        return done.stdout

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    without = run(["python3", "-c", "import nsys_llm"], elsewhere, bare_python, nsight)
    assert "No module named 'nsys_llm'" in without.stdout
    before = listing(nsight)
    assert "llm_hotspots" not in do("nsys", "recipe", "--help")
    unready = run(["python3", ROOT / "install.py", "--check"], elsewhere, bare_python, nsight)
    assert (unready.returncode, "install.py --nsys" in unready.stdout) == (1, True)

    assert "placed nsys-llm-recipes" in do("python3", ROOT / "install.py", "--nsys")
    assert "llm_hotspots -- LLM hotspots" in do("nsys", "recipe", "--help")
    assert "ready: " in do("python3", ROOT / "install.py", "--check")
    for recipe, mode in runs:
        inputs = [rank_set, rank_set] if load_manifest(recipe).sided else [rank_set]
        name = f"{recipe}-{mode}"
        words = ("--input", *inputs, "--mode", mode, "--output", name)
        assert "Generated:" in do("nsys", "recipe", recipe, *words)
        alone = analyse(tmp_path / name, *inputs, recipe=recipe)
        assert_same(elsewhere / name, alone, recipe=recipe)
    do("nsys", "recipe", "diff", "--input", "llm_hotspots-none", "llm_hotspots-dask-futures")
    assert (elsewhere / "llm_hotspots-diff-1/all_stats.parquet").is_file()

    packages = next(nsight.glob("target-*/python/packages"))
    ours = [packages / "nsys_llm", packages / "nsys_recipe/recipes/llm_hotspots"]
    assert all((folder / "__pycache__").is_dir() for folder in ours)
    assert "removed" in do("python3", ROOT / "install.py", "--uninstall")
    assert listing(nsight) == before
    assert not [path for path in packages.rglob("*") if "llm" in path.name]
    assert "llm_hotspots" not in do("nsys", "recipe", "--help")


@pytest.mark.nightly
def test_another_version_in_the_environment_does_not_mix_with_the_one_beside_nsys(
    nsight, bare_python, rank_set, tmp_path
):
    other = next(bare_python.parent.glob("lib/python*/site-packages")) / "nsys_llm"
    other.mkdir()
    (other / "__init__.py").write_text("__version__ = '0.0.1'\n")
    install = ["python3", ROOT / "install.py"]
    try:
        assert run([*install, "--nsys"], tmp_path, bare_python, nsight).returncode == 0
        words = ["nsys", "recipe", "llm_hotspots", "--input", rank_set, "--output", "out"]
        done = run(words, tmp_path, bare_python, nsight)
        assert done.returncode == 0, done.stdout
        assert (tmp_path / "out/kernels.parquet").is_file()
    finally:
        shutil.rmtree(other)
        run([*install, "--uninstall"], tmp_path, bare_python, nsight)
