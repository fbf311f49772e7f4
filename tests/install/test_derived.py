"""Files that follow from the manifests are fresh, and a stale one is found and mended."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from results import run

from nsys_llm.install.derive import (
    derived_files,
)

ROOT = Path(__file__).parents[2]
METADATA = Path("recipes", "llm_hotspots", "metadata.json")


@pytest.fixture
def checkout(tmp_path):
    """A copy of all that is derived, and of what tells that it is a checkout."""
    for path, _ in derived_files(ROOT):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    return tmp_path


def derive_in(folder, *words):
    return run([sys.executable, "-m", "nsys_llm.install.derive", *words], folder)


def test_the_derived_files_of_this_checkout_are_fresh():
    stale = [
        str(path.relative_to(ROOT))
        for path, text in derived_files(ROOT)
        if path.read_text("utf-8") != text
    ]
    assert stale == []


@pytest.mark.nightly
def test_a_stale_metadata_file_is_found_left_alone_and_mended(checkout):
    stale = checkout / METADATA
    fresh = stale.read_text()
    stale.write_text(fresh.replace("LlmHotspots", "Hotspots"))
    spoilt = stale.read_text()
    assert spoilt != fresh

    checked = derive_in(checkout, "--check")
    assert checked.returncode == 1
    assert checked.stdout.splitlines() == [f"stale: {METADATA}"]
    assert stale.read_text() == spoilt

    mended = derive_in(checkout)
    assert mended.returncode == 0
    assert mended.stdout.splitlines() == [f"written: {METADATA}"]
    assert stale.read_text() == fresh


def test_a_folder_that_is_no_checkout_is_told_in_one_line(tmp_path):
    outcome = derive_in(tmp_path, "--check")
    assert outcome.returncode == 2
    assert "Traceback" not in outcome.stdout
    assert "not a checkout" in outcome.stdout
