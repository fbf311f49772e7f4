"""Files that follow from the manifests are fresh, and a stale one is found and mended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nsys_llm.install.derive import derived_files, main

ROOT = Path(__file__).parents[2]
METADATA = Path("recipes", "llm_hotspots", "metadata.json")


@pytest.fixture
def checkout(tmp_path):
    """A copy of all that is derived, and of what tells that it is a checkout."""
    for path, _ in derived_files(ROOT):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    return tmp_path


def test_the_derived_files_of_this_checkout_are_fresh():
    stale = [
        str(path.relative_to(ROOT))
        for path, text in derived_files(ROOT)
        if path.read_text("utf-8") != text
    ]
    assert stale == []


def test_a_stale_metadata_file_is_found_left_alone_and_mended(checkout, monkeypatch, capsys):
    monkeypatch.chdir(checkout)
    stale = checkout / METADATA
    fresh = stale.read_text()
    spoilt = fresh.replace("LlmHotspots", "Hotspots")
    stale.write_text(spoilt)
    assert spoilt != fresh
    assert main(["--check"]) == 1
    assert stale.read_text() == spoilt
    assert main([]) == 0
    assert stale.read_text() == fresh
    assert capsys.readouterr().out.splitlines() == [f"stale: {METADATA}", f"written: {METADATA}"]


def test_a_folder_that_is_no_checkout_is_told_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "not a checkout" in line
