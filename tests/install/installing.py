"""install.py as a user runs it, in this process, and what it says."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def installer(root: Path = ROOT) -> ModuleType:
    """Load the install.py of a checkout."""
    spec = importlib.util.spec_from_file_location("installer", root / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def install(
    *words: object, folder: Path, module: ModuleType | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run install.py in a folder, with variables added to its environment.

    Without some, nothing is compiled, which takes seconds.
    """
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "dont_write_bytecode", True)
        for name, value in {"NSYS_LLM_NATIVE": "0", **variables}.items():
            patch.setenv(name, value)
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = (module or installer()).main([*map(str, words)])
            except SystemExit as ended:
                code = ended.code
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def assert_told(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Fail unless it ended with a code, and a single line of error with these words."""
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
    for word in ("install.py: ", *words):
        assert word in done.stderr


def fake_pip(folder: Path, body: str) -> str:
    """Make what stands in for `python -m pip`; return the value for PYTHONPATH."""
    (folder / "pip").mkdir()
    (folder / "pip" / "__init__.py").touch()
    (folder / "pip" / "__main__.py").write_text(body)
    return str(folder)
