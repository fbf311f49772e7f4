"""report.html: the notebook as one page that fetches nothing and lets nothing of a trace run."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256

import pytest
from rendered import Markup, strings_in

pytestmark = pytest.mark.drawn


@pytest.fixture(
    scope="module", params=["llm_hotspots", pytest.param("llm_overview", marks=pytest.mark.slow)]
)
def page(request, shared_runs):
    return (shared_runs.run("demo", request.param)[1] / "report.html").read_text("utf-8")


@pytest.fixture(scope="module")
def overview(shared_runs):
    return (shared_runs.run("demo", "llm_overview")[1] / "report.html").read_text("utf-8")


def scripts_of(page):
    return dict(re.findall(r"<script([^>]*)>(.*?)</script>", page, re.S))


def unpacked(page, name):
    packed = scripts_of(page)[f' type="application/octet-stream" id="{name}"']
    return zlib.decompress(b64decode(packed, validate=True)).decode()


def shown(page):
    return re.sub("<script.*?</script>|<style.*?</style>", "", page, flags=re.S)


def test_only_our_script_and_the_plotly_that_it_unpacks_may_run(page):
    assert len(scripts_of(page)) == 3
    library = unpacked(page, "plotly")
    assert library.count("plotly.js v") > 0
    assert "plotly.js v" not in page
    hashes = {
        b64encode(sha256(script.encode()).digest()).decode()
        for script in (scripts_of(page)[""], library)
    }
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert set(re.findall(r"'sha256-([^']*)'", policy)) == hashes
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert re.search(r"script-src[^;]*'unsafe-inline'", policy) is None


def test_a_page_has_three_megabytes_at_most(page):
    assert len(page.encode()) < 3_000_000


def test_nothing_is_fetched_and_links_stay_on_the_page(page):
    without = shown(page)
    assert not re.search(r"https?:|\bsrc\s*=|@import|url\(|<link|<iframe|<base", without, re.I)
    links = set(re.findall(r'href="#([^"]*)"', without))
    assert len(links) > 5
    assert without.count("href=") == without.count('href="#')


def test_strings_of_figures_are_text(page):
    assert any("<br>" in string for string in strings_in(json.loads(unpacked(page, "figures"))))


@pytest.mark.slow
def test_findings_stand_above_the_timeline_and_the_capture_below_it(overview):
    headings = re.findall("<h2[^>]*>(.*?)</h2>", overview)
    assert [re.sub(":.*", "", text) for text in headings[:4]] == [
        "Findings",
        "Timeline",
        "Capture",
        "What to fix",
    ]


@pytest.mark.slow
def test_the_whole_run_is_less_than_a_megabyte(overview):
    plots = json.loads(unpacked(overview, "figures"))["plots"]
    assert plots[0]["layout"]["title"]["text"].startswith("Timeline: Whole run, ")
    assert len(json.dumps(plots[0])) < 1_000_000


def test_backticks_are_code(page):
    assert "`" not in Markup(shown(page)).text
    assert "<code>" in page


@pytest.mark.slow
def test_a_browser_that_cannot_draw_says_so(overview):
    assert re.search("<noscript>.*DecompressionStream.*</noscript>", overview)
    assert re.search('<p [^>]*id="undrawn" hidden>.*DecompressionStream', overview)
