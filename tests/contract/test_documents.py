"""Documents: what they link to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_relative_link_leads_somewhere(document):
    links = re.findall(r"\]\(([^)#\s]+)", document.read_text("utf-8"))
    inside = [link for link in links if "://" not in link]
    missing = [link for link in inside if not (document.parent / link).exists()]
    assert missing == []


def test_the_readme_shows_a_picture():
    picture = ROOT / "docs" / "notebook.png"
    assert "](docs/notebook.png)" in (ROOT / "README.md").read_text("utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300_000
