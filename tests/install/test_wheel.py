"""The wheel holds what is tracked, and nothing else."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from installing import ROOT, installer

from nsys_llm.profile.sqlite import pages

FOLDERS = {
    "shared/nsys_llm/": "nsys_llm/",
    "recipes/": "nsys_llm/recipes/",
    "manifests/": "nsys_llm/manifests/",
}


def tracked() -> list[str]:
    command = ["git", "-C", str(ROOT), "ls-files", *FOLDERS]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not done.stdout:
        pytest.skip("not a checkout")
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.mark.nightly("false")
@pytest.mark.parametrize("compiler", ["gcc", "false"])
def test_the_wheel_holds_the_tracked_files_of_the_three_folders_and_what_is_built(
    tmp_path, compiler
):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    expected = {
        place + name.removeprefix(folder)
        for name in tracked()
        for folder, place in FOLDERS.items()
        if name.startswith(folder) and not name.endswith(".c")
    }
    source = installer().copy_sources(tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    built = {**os.environ, "CC": compiler}
    subprocess.run([*pip, "-w", tmp_path, source], check=True, capture_output=True, env=built)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if ".dist-info/" not in name}
        file.extractall(tmp_path)
    if compiler == "false":
        assert packed == expected
        assert wheel.name.endswith("-py3-none-any.whl")
        return
    library = "nsys_llm/profile/sqlite/_leaf.so"
    assert packed == expected | {library}
    assert re.search(r"-py3-none-linux_\w+\.whl$", wheel.name)
    assert ctypes.CDLL(str(tmp_path / library)).leaf_abi() == pages._ABI
