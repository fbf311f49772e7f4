"""install.py: what it installs, what it leaves alone, and one line for each failure."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from installing import ROOT, assert_told, fake_pip, install, installer

from nsys_llm.run import cli, demo
from nsys_llm.testing.demo import write_demo

INSTALL = ROOT / "install.py"
TREE = ast.parse(INSTALL.read_text("utf-8"))


@pytest.fixture(autouse=True)
def _no_real_pip(tmp_path_factory, monkeypatch):
    """Let pip do nothing, so that not even a faulty install.py changes the Python of the tests."""
    monkeypatch.setenv("PYTHONPATH", fake_pip(tmp_path_factory.mktemp("fakes"), ""))


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--current --venv is required"),
        (["--current", "--venv", "v"], "not allowed with"),
        (["--venv", "v", "--dem"], "--dem"),
        (["--venv"], "expected one argument"),
    ],
)
def test_bad_usage_is_one_line_with_an_example(tmp_path, arguments, words):
    done = install(*arguments, folder=tmp_path)
    assert_told(done, 2, words, "try: python3 install.py --venv .venv --demo")
    assert not list(tmp_path.iterdir())


def test_an_old_python_is_told_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    done = install("--current", folder=tmp_path)
    assert_told(done, 2, "Python 3.10 or newer is needed; this is 3.9.18")


def test_it_needs_the_standard_library_only_and_stays_short():
    imported = {
        name.split(".")[0]
        for node in ast.walk(TREE)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    assert imported <= sys.stdlib_module_names
    assert len(INSTALL.read_text("utf-8").splitlines()) <= 300


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_a_python_without_venv_is_told_what_works(tmp_path, missing, monkeypatch):
    module = installer()
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: name != missing)
    done = install("--venv", "v", module=module, folder=tmp_path)
    assert_told(done, 2, "apt install python3-venv", "--current")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_an_environment_is_refused_and_left_alone(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "thesis.txt").touch()
    before = files_below(tmp_path)
    assert_told(install("--venv", work, folder=tmp_path), 2, "work is not a virtual environment")
    ended = install("--venv", "work/thesis.txt", folder=tmp_path)
    assert_told(ended, 2, "thesis.txt is not a virtual environment")
    assert_told(install("--venv", "work/thesis.txt/v", folder=tmp_path), 2, "Not a directory")
    assert files_below(tmp_path) == before


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("error: externally-managed-environment\nhint: See PEP 668", "(PEP 668); use --venv DIR"),
        ("ERROR: OSError: [Errno 13] Permission denied: '/usr/lib/x'", "permission to write"),
        ("No module named pip", "has no pip; use --venv DIR"),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError'\n"
            "  ERROR: No matching distribution found for numpy\n"
            "error: subprocess-exited-with-error\nnote: not a problem with pip.",
            "no network, it seems; check it, or name a mirror in PIP_INDEX_URL "
            "(pip: ERROR: No matching distribution found for numpy)",
        ),
        ("ERROR: [Errno 28] No space left on device", "(pip: ERROR: [Errno 28] No space left"),
        ("", "could not install into"),
    ],
)
def test_what_stops_pip_is_one_line_with_what_to_do(tmp_path, said, words):
    module = installer()
    module._run = lambda *_, **__: (1, said)
    assert_told(install("--current", module=module, folder=tmp_path), 1, words)


def test_an_interrupt_is_one_line_and_leaves_no_temporary_files(tmp_path):
    (tmp_path / "temporary").mkdir()
    body = """import os, signal, tempfile, time
tempfile.mkdtemp()
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)"""
    # A shell may have told the test run to ignore this signal.
    code = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += f"runpy.run_path({str(INSTALL)!r}, run_name='__main__')"
    variables = {"PYTHONPATH": fake_pip(tmp_path, body), "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run(
        [sys.executable, "-c", code, "--current"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert_told(done, 130, "interrupted")
    assert not list((tmp_path / "temporary").iterdir())


def test_a_file_without_its_checkout_says_so(tmp_path):
    shutil.copyfile(INSTALL, tmp_path / "install.py")
    command = [sys.executable, tmp_path / "install.py", "--current", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert_told(done, 2, "pyproject.toml is missing")


@pytest.mark.nightly
def test_the_demo_says_where_the_results_are(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    done = install("--current", "--demo", folder=folder)
    # A slow machine says how far it is.
    assert re.fullmatch(r"(\d of 4 profiles done\n)*", done.stderr)
    assert done.returncode == 0
    assert re.search(r"^baseline: 4 GPUs, .* a step +\S+-BOUND$", done.stdout, re.M), "the screen"
    assert re.search(r"^ 1 about .* Rank 2's GPU is slow", done.stdout, re.M)
    *_, report, notebook, compared = done.stdout.splitlines()
    assert compared.endswith("--baseline nsys-llm-demo/baseline --input nsys-llm-demo/after_fix")
    assert report.endswith("nsys-llm-demo/llm_overview/report.md")
    assert "nsys-llm-demo/llm_overview/analysis.ipynb" in notebook
    for name in ("parts/llm_hotspots/kernels.parquet", "report.md", "analysis.ipynb"):
        assert (folder / "nsys-llm-demo/llm_overview" / name).is_file()


def test_the_demo_is_made_once_and_whole(tmp_path, monkeypatch, capsys):
    # Smaller than the demo, and without its run, which replaces a result of ours as any run does.
    monkeypatch.setattr(demo, "write_demo", partial(write_demo, scale=0.05))
    runs, main = [], cli.main
    monkeypatch.setattr(cli, "main", lambda words: runs.append(words) or 0)
    folder = tmp_path / "nsys-llm-demo"
    assert main(["demo", str(folder)]) == 0
    first = files_below(folder)
    assert {"baseline/rank0.sqlite", "after_fix/rank0.sqlite"} <= {*first}
    assert os.listdir(tmp_path) == [folder.name]
    assert main(["demo", str(folder)]) == 0
    assert files_below(folder) == first
    assert f"demo: using {folder}, which is there already" in capsys.readouterr().out
    words = ["overview", str(folder / "baseline"), "--output", str(folder / "llm_overview")]
    assert runs == [[*words, "--force-overwrite"]] * 2
