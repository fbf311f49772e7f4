"""report.html: the notebook as one page that fetches nothing and lets nothing of a trace run."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256

import pytest
from rendered import strings_in

pytestmark = pytest.mark.drawn


@pytest.fixture(scope="module")
def demo_run(shared_runs):
    return shared_runs.run("demo", "llm_hotspots")[1]


@pytest.fixture(scope="module")
def page(demo_run):
    return (demo_run / "report.html").read_text("utf-8")


def scripts_of(page):
    return re.findall(r"<script([^>]*)>(.*?)</script>", page, re.S)


def test_plotly_is_there_once_and_only_our_two_scripts_may_run(page):
    scripts = [body for attributes, body in scripts_of(page) if not attributes]
    assert len(scripts) == 2
    assert page.count("plotly.js v") == scripts[0].count("plotly.js v")
    hashes = {b64encode(sha256(script.encode()).digest()).decode() for script in scripts}
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert set(re.findall(r"'sha256-([^']*)'", policy)) == hashes
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert re.search(r"script-src[^;]*'unsafe-inline'", policy) is None


def test_nothing_is_fetched_and_links_stay_on_the_page(page):
    without = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"https?:|\bsrc\s*=|@import|url\(|<link|<iframe|<base", without, re.I)
    links = set(re.findall(r'href="#([^"]*)"', without))
    assert len(links) > 10
    assert without.count("href=") == without.count('href="#')


def test_no_string_of_a_figure_can_end_the_element_that_holds_it(page):
    (text,) = (body for attributes, body in scripts_of(page) if "json" in attributes)
    assert not set("<>&") & set(text)
    assert any("<br>" in string for string in strings_in(json.loads(text)))
