"""Files that follow from the manifests are fresh, and a stale one is found and mended."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from results import run

from nsys_llm.install.derive import (
    common_page,
    derived_files,
    main,
    metadata,
    recipe_page,
    versions_table,
)
from nsys_llm.manifest.manifest import load_manifest, recipe_names

ROOT = Path(__file__).parents[2]
MANIFEST = load_manifest("llm_hotspots")
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


def test_a_section_of_a_page_is_rewritten_between_its_marks_only(checkout, monkeypatch):
    page = checkout / "README.md"
    mark = "<!-- derived: versions -->\n"
    page.write_text(f"before\n{mark}old\n<!-- end -->\nafter\n<!-- end -->\n")
    monkeypatch.chdir(checkout)
    assert main(["--check"]) == 1
    assert main([]) == 0
    table = versions_table()
    assert page.read_text() == f"before\n{mark}\n{table}\n<!-- end -->\nafter\n<!-- end -->\n"
    assert main(["--check"]) == 0


def test_a_folder_that_is_no_checkout_is_told_in_one_line(tmp_path):
    outcome = derive_in(tmp_path, "--check")
    assert outcome.returncode == 2
    assert "Traceback" not in outcome.stdout
    assert "not a checkout" in outcome.stdout


def test_metadata_is_what_the_manifest_says():
    document = json.loads(metadata(MANIFEST))
    assert document == {
        "module_name": "llm_hotspots",
        "class_name": MANIFEST.class_name,
        "display_name": MANIFEST.title,
        "description": MANIFEST.description,
        "tags": list(MANIFEST.tags),
        "type": "stats",
    }


@pytest.mark.parametrize("name", recipe_names())
def test_every_option_and_column_stands_once_in_the_reference_in_whole_rows(name):
    manifest = load_manifest(name)
    common, page = common_page(), recipe_page(manifest)
    text = f"{common}\n{page}"
    for option in manifest.options:
        assert text.count(f"| `{option.flag}`") == 1
    for table in manifest.writes:
        (part,) = re.findall(rf"\*\*`{table.file}\.parquet`.*?(?=\n\*\*|\n#|\Z)", text, re.DOTALL)
        shown = re.findall(r"^\| `([^`]+)` \| (\w+)", part, re.MULTILINE)
        expected = [(column.name, column.dtype) for column in table.columns]
        # The page of all recipes shows what only some of them write, too.
        assert [row for row in shown if row in expected] == expected
        assert {name for name, _ in shown} - {name for name, _ in expected} <= {"run"}
    for metric in manifest.metrics:
        assert f"| `{metric.typed}` | {metric.unit} |" in page
    assert all(f"| `{key}` |" in page for key in manifest.verdict)
    # A bar inside a cell would split it.
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({row.replace("\\|", "").count("|") for row in block.splitlines()}) == 1
