"""What people see: every recipe's notebook in JupyterLab, and its page, in a real browser.

Chromium is found by NSYS_LLM_TEST_CHROMIUM or on PATH; these tests are skipped where there is none.
"""

from __future__ import annotations

import importlib.util
import re
import shutil

import pytest
from devtools import VARIABLE, Browser, find_chromium
from effort import nightly_but
from lab_server import Lab
from rendered import PLOTLY, read_notebook, shown_by

from nsys_llm.manifest.manifest import recipe_names

CHROMIUM = find_chromium()
pytestmark = [
    pytest.mark.drawn,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason=f"no Chromium: set {VARIABLE}, or put it on PATH"),
]
needs_lab = pytest.mark.skipif(
    importlib.util.find_spec("jupyterlab") is None, reason="jupyterlab is not installed"
)

#: Elements in which plotly drew something.
PLOTS = ".js-plotly-plot"
#: How many figures a recipe has at least, where that is not five.
FIGURES_N = {"llm_overview": 3, "trace_diff": 2}
FIGURES_N |= dict.fromkeys(("comm_stats", "roofline", "serving_steps"), 1)
#: The results that CI opens: of the demo set, and of the hostile one.
ON_PAGES = {"demo": ("llm_hotspots", "llm_overview"), "names": ("llm_hotspots",)}
DRAWN = "document.documentElement.dataset.drawn"
#: What a script of a name would have left, and elements that only a name would bring.
TRACES = """[...document.querySelectorAll(
  'img[src="x"], iframe, object, a[href^="javascript"], a[href*="evil"], svg a, mjx-container')
].map(one => one.parentElement.outerHTML.slice(0, 2000))"""


#: Width and height of each figure.
SIZES = """[...document.querySelectorAll('.js-plotly-plot .main-svg:first-child')].map(
  one => [one.getBoundingClientRect().width, one.getBoundingClientRect().height].map(Math.round))"""
#: Sections whose rows need a scroll bar.
TOO_WIDE = """[...document.querySelectorAll('.rows')]
  .filter(one => one.scrollWidth > one.clientWidth + 1)
  .map(one => [...document.querySelectorAll('h2')].filter(
    head => head.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING
  ).pop().textContent)"""
#: Of each cell of code in the open notebook: its execution count, and the types of its outputs.
CODE_CELLS = """[...jupyterapp.shell.currentWidget.content.model.cells]
  .filter(one => one.type === 'code')
  .map(one => [one.executionCount, one.outputs.toJSON().map(output => output.output_type)])"""


#: The kinds of elements in what each figure shows over its first points.
HOVERS = """[...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => {
  return plot._fullData.slice(0, 30).flatMap((trace, curveNumber) => {
    if (trace.visible !== true || trace.type === 'heatmap') return [];
    try { Plotly.Fx.hover(plot, [{curveNumber, pointNumber: 0}]); } catch { return []; }
    return [...plot.querySelectorAll('.hoverlayer text')].map(
      text => [...text.querySelectorAll('*')].map(one => one.tagName));
  });
})"""


@pytest.fixture(scope="module")
def made(request, shared_runs, tmp_path_factory):
    """The results of recipes: of the demo set, and of the hostile one in a folder below."""
    folder = tmp_path_factory.mktemp("browser")
    for kind, by_day in ON_PAGES.items():
        place = folder / "hostile" if kind == "names" else folder
        for recipe in recipe_names() if request.config.getoption("--nightly") else by_day:
            # JupyterLab saves what it has run.
            shutil.copytree(shared_runs.run(kind, recipe)[1], place / recipe)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def lab(made, tmp_path_factory):
    with Lab(made, tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture
def page(browser):
    # As high as eight figures: fewer pictures to take.
    opened = browser.page(1400, 2400)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def opened(made, browser):
    """The page of a recipe, drawn once: that takes longer than all that is done to it."""
    pages = {}

    def page_of(recipe):
        if recipe not in pages:
            pages[recipe] = browser.page(1400, 2400)
            pages[recipe].open((made / recipe / "report.html").as_uri())
            pages[recipe].wait(DRAWN)
        pages[recipe].resize(1400, 2400)
        pages[recipe].run("window.scrollTo(0, 0)")
        return pages[recipe]

    yield page_of
    for page in pages.values():
        page.close()


@pytest.fixture
def overview(opened):
    return opened("llm_overview")


def figures_n(folder):
    return sum(PLOTLY in data for data in shown_by(read_notebook(folder)))


def blank(pictures):
    """Return the figures that show next to nothing: axes alone have some ten shades of grey."""
    return [
        (n, picture) for n, picture in enumerate(pictures) if picture[0] < 20 or picture[1] < 0.01
    ]


def assert_quiet(page, prefix):
    """Check that nothing was run, asked or fetched that is not ours."""
    assert page.event_params("Page.javascriptDialogOpening") == []
    assert page.requested(lambda url: url.startswith(prefix)) == []
    assert page.run(TRACES) == []


@pytest.fixture(scope="module")
def lab_page(browser, lab):
    """JupyterLab, opened once for all notebooks."""
    opened = browser.page(1400, 2400)
    opened.open(f"{lab.address}/lab?reset")
    opened.wait("window.jupyterapp && document.querySelector('.jp-Launcher')")
    yield opened
    opened.close()


def show_in_lab(lab_page, path):
    """Open a notebook instead of the one before, and wait until its first cell is there."""
    name = f"{path}/analysis.ipynb"
    # One that has changed would be asked for before it is closed.
    lab_page.run("""(() => {
      const open = jupyterapp.shell.currentWidget;
      if (open?.context) open.context.model.dirty = false;
      return jupyterapp.commands.execute('application:close-all').then(() => true);
    })()""")
    lab_page.wait("!document.querySelector('.jp-Notebook')")
    lab_page.run(
        f"jupyterapp.commands.execute('docmanager:open', {{path: {name!r}}}).then(() => true)"
    )
    lab_page.wait("document.querySelector('.jp-Notebook .jp-MarkdownOutput h1')")


def unfold(page):
    """Open what is folded below the sections to read first, and wait until it is laid out."""
    page.run("document.getElementById('more').open = true")
    page.wait(f"{SIZES}.every(one => one[0] > 100)")


def unfold_in_lab(page):
    """Likewise in a notebook."""
    command = "jupyterapp.commands.execute('notebook:expand-all-headings')"
    page.run(f"{command}.then(() => true)")
    page.wait(f"{SIZES}.every(one => one[0] > 100 && one[1] > 100)")


def drawn(page, wanted_n):
    page.wait(f"document.querySelectorAll('{PLOTS} .main-svg').length >= {wanted_n}")


@pytest.mark.parametrize("recipe", nightly_but(recipe_names(), ["llm_overview"]))
def test_the_page_draws_its_figures_and_none_is_blank(made, opened, recipe):
    page = opened(recipe)
    assert not page.run("document.getElementById('more').open")
    unfold(page)
    wanted_n = figures_n(made / recipe)
    assert wanted_n >= FIGURES_N.get(recipe, 5)
    pictures = page.pictures(PLOTS)
    assert len(pictures) == wanted_n
    assert blank(pictures) == []
    assert page.event_params("Runtime.exceptionThrown") == []
    assert page.event_params("Log.entryAdded") == []
    assert_quiet(page, "file:")
    # Of all that plotly offers nothing sends a figure away.
    buttons = page.run(
        "[...document.querySelectorAll('.modebar-btn')].map(one => one.dataset.title)"
    )
    assert "Reset axes" in buttons
    assert [button for button in buttons if re.search("share|cloud|send|edit", button, re.I)] == []
    # No table of the demo set is wider than the page.
    assert page.run(TOO_WIDE) == []


#: The first figure of a page that marks findings: whether it stands below them, its range in time
#: and all of it.
TIMELINE = """(() => {
  const plot = [...document.querySelectorAll('.js-plotly-plot')]
    .find(one => one.data.some(trace => trace.meta === 'findings'));
  const order = plot.compareDocumentPosition(document.querySelector('details'));
  return {
    below: Boolean(order & Node.DOCUMENT_POSITION_PRECEDING),
    top: plot.getBoundingClientRect().top,
    notes: [...plot.querySelectorAll('.annotation-text')].map(one => one.textContent),
    range: plot.layout.xaxis.range,
    whole: plot.layout.meta.range,
    marks: plot.data.filter(one => one.meta === 'findings').map(
      one => one.customdata.map((number, at) => [number, one.base[at], one.base[at] + one.x[at]])
    ).flat(),
  };
})()"""
#: Zooms that figure.
ZOOM = """Plotly.relayout([...document.querySelectorAll('.js-plotly-plot')]
  .find(one => one.data.some(trace => trace.meta === 'findings')), 'xaxis.range', {})
  .then(() => true)"""


def test_the_timeline_below_the_findings_names_the_first(overview):
    page, shown = overview, overview.run(TIMELINE)
    assert shown["below"]
    first = page.run("document.querySelector('details summary').textContent")
    assert shown["notes"][0].startswith("1  Rank 2's GPU is slow")
    assert shown["notes"][0].removeprefix("1  ") in first
    # A click on the finding's link shows its place, and once more; never more than the figure has.
    link = "document.querySelector('a[href=\"#finding-1\"]')"
    marks = [mark for mark in shown["marks"] if mark[0] == 1]
    low, high = min(mark[1] for mark in marks), max(mark[2] for mark in marks)
    room = (high - low) / 4
    wanted = [max(low - room, shown["whole"][0]), min(high + room, shown["whole"][1])]
    assert shown["range"] == shown["whole"]
    for _ in range(2):
        page.run(ZOOM.format("[0, 1]"))
        page.run(f"{link}.click()")
        page.wait(f"Math.abs({TIMELINE}.range[0] - {wanted[0]}) < 1e-6")
        page.wait(f"Math.abs({TIMELINE}.range[1] - {wanted[1]}) < 1e-6")
        page.wait(f"Math.abs({TIMELINE}.top) < 5")
    assert page.event_params("Runtime.exceptionThrown") == []


#: How many stretches of each figure of steps are marked, and how many there are.
MARKED = """[...document.querySelectorAll('.js-plotly-plot')]
  .filter(one => one.layout.meta && one.layout.meta.names)
  .map(one => one.data.filter(trace => trace.meta === 'names').map(
    trace => [(trace.selectedpoints || trace.x).length, trace.x.length]
  ).reduce(([marked, all], [some, n]) => [marked + some, all + n], [0, 0]))"""


def test_a_part_of_a_kernels_name_marks_its_stretches(overview):
    page = overview
    everything = page.run(MARKED)
    assert len(everything) == 2
    assert page.run("document.querySelectorAll('#names option').length") > 5
    type_in = "(() => {{const field = document.getElementById('name'); field.value = {!r};"
    type_in += " field.dispatchEvent(new Event('input'));}})()"
    page.run(type_in.format("ATTN"))
    marked = page.run(MARKED)
    assert all(0 < some < n for some, n in marked)
    told = page.run("document.getElementById('named').textContent")
    assert told.startswith(f"{sum(some for some, _ in marked)} stretches, ")
    page.run(type_in.format("no such kernel"))
    assert [some for some, _ in page.run(MARKED)] == [0, 0]
    assert "none in these steps" in page.run("document.getElementById('named').textContent")
    page.run(type_in.format(""))
    assert page.run(MARKED) == everything
    assert page.event_params("Runtime.exceptionThrown") == []


def test_a_step_of_the_whole_run_leads_to_its_figure(overview):
    page = overview
    steps = page.run(
        "[...document.querySelectorAll('.js-plotly-plot')].map(one => one.layout.meta?.step)"
        ".filter(step => step !== undefined)"
    )
    figure = f"one => one.layout.meta?.step === {steps[1]}"
    top = f"[...document.querySelectorAll('{PLOTS}')].find({figure}).getBoundingClientRect().top"
    page.resize(1400, 600)
    page.run(
        "document.querySelector('.js-plotly-plot').emit('plotly_click', "
        f"{{points: [{{customdata: [{steps[1]}, {steps[1]}]}}]}})"
    )
    page.wait(f"Math.abs({top}) < 5")


#: The colors of the page and of what figures write and draw lines with.
COLORS = """(() => {
  const style = (selector, name) => [...new Set([...document.querySelectorAll(selector)]
    .map(one => getComputedStyle(one)[name]))];
  return {
    page: style('body', 'backgroundColor'), text: style('body', 'color'),
    figures: style('.main-svg', 'backgroundColor'),
    texts: style('.xtick text, .ytick text, .gtitle, .legendtext, .xtitle', 'fill'),
    grid: style('.gridlayer path', 'stroke'),
  };
})()"""


def test_a_dark_screen_gets_a_dark_page_and_readable_figures(made, page, overview):
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=features)
    page.open((made / "llm_overview" / "report.html").as_uri())
    page.wait(DRAWN)
    seen = {"light": overview.run(COLORS), "dark": page.run(COLORS)}
    for colors in seen.values():
        assert colors["figures"] == ["rgba(0, 0, 0, 0)"]
        assert colors["texts"] == colors["text"]
        assert contrast(colors["text"][0], colors["page"][0]) > 7
        assert 1.1 < contrast(colors["grid"][0], colors["page"][0]) < 3
    assert luminance(seen["dark"]["page"][0]) < 0.05
    assert luminance(seen["light"]["page"][0]) > 0.9


def luminance(color):
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_on_a_narrow_screen_tables_scroll_in_their_boxes(overview):
    page = overview
    page.resize(800, 1200)
    unfold(page)
    page.wait(f"{SIZES}.every(one => one[0] <= 800)")
    assert page.run("document.documentElement.scrollWidth") <= 800
    assert page.run(TOO_WIDE) != []
    assert (
        page.run("""[...document.querySelectorAll('table')].filter(
      one => one.getBoundingClientRect().width > 752 && !one.closest('.rows')).length""")
        == 0
    )


def test_a_browser_that_cannot_unpack_says_so_and_shows_the_rest(made, page):
    page.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream;")
    page.open((made / "llm_overview" / "report.html").as_uri())
    page.wait("document.readyState === 'complete'")
    assert "DecompressionStream" in page.run("document.getElementById('undrawn').innerText")
    assert page.run("document.querySelectorAll('.rows table').length") > 2
    assert page.event_params("Runtime.exceptionThrown") == []


def test_links_and_menus_of_the_page_work(opened):
    page = opened("llm_hotspots")
    # One leads to a section that is read first, one to a folded one; both are scrolled to.
    for level in ("h2", "h3"):
        page.run(f"""(() => {{
          const heading = document.querySelector('{level}[id]');
          location.hash = '';
          location.hash = '#' + encodeURIComponent(heading.id);
        }})()""")
        top = f"document.querySelector('{level}[id]').getBoundingClientRect().top"
        page.wait(f"Math.abs({top}) < 50")
    assert page.run("document.getElementById('more').open")
    shown = page.run("""(async () => {
      const plot = [...document.querySelectorAll('.js-plotly-plot')]
        .find(one => one.layout.updatemenus);
      const visible = () => plot.data.map(one => one.visible !== false).join();
      const before = visible();
      const [menu] = plot.layout.updatemenus;
      await Plotly[menu.buttons[1].method](plot, ...menu.buttons[1].args);
      return [before !== visible(), plot.querySelectorAll('.updatemenu-header').length];
    })()""")
    assert shown == [True, 1]


@pytest.mark.nightly
def test_figures_of_the_page_follow_its_width_and_keep_their_height(made, page):
    page.open((made / "trace_diff" / "report.html").as_uri())
    page.wait(DRAWN)
    unfold(page)
    before = page.run(SIZES)
    assert min(height for _, height in before) > 100
    # Twice: what a figure forgets of itself shows when it is laid out anew once more.
    for width in (1000, 900):
        page.resize(width, 2400)
        page.wait(f"{SIZES}.every(one => one[0] > 600 && one[0] < {width})")
        assert [height for _, height in page.run(SIZES)] == [height for _, height in before]


@pytest.mark.nightly
@needs_lab
@pytest.mark.parametrize("recipe", recipe_names())
def test_jupyterlab_shows_the_figures_on_opening_and_runs_again(made, lab, lab_page, recipe):
    wanted_n = figures_n(made / recipe)
    show_in_lab(lab_page, recipe)
    drawn(lab_page, wanted_n)
    unfold_in_lab(lab_page)
    # All of them are looked at on the page, which draws the same.
    pictures = lab_page.pictures(f".jp-Notebook {PLOTS}", 4)
    assert len(pictures) >= min(4, wanted_n)
    assert blank(pictures) == []
    lab_page.run("jupyterapp.commands.execute('notebook:clear-all-cell-outputs').then(() => true)")
    lab_page.wait(f"!document.querySelector('.jp-Notebook {PLOTS}')")
    lab_page.run("jupyterapp.commands.execute('notebook:run-all-cells').then(() => true)")
    counts = lab_page.run(CODE_CELLS)
    assert [cell[0] for cell in counts] == list(range(1, len(counts) + 1))
    # Every cell but the first, which imports, shows one thing, and none an error.
    assert [cell[1] for cell in counts] == [[], *[["execute_result"]] * (len(counts) - 1)]
    drawn(lab_page, wanted_n)
    assert lab_page.run(f"document.querySelectorAll('.jp-Notebook {PLOTS}').length") == wanted_n
    assert_quiet(lab_page, lab.address)


@pytest.mark.parametrize("recipe", nightly_but(recipe_names(), ["llm_hotspots"]))
def test_no_name_does_anything_on_the_page(made, page, recipe):
    page.open((made / "hostile" / recipe / "report.html").as_uri())
    page.wait(DRAWN)
    least_n = FIGURES_N.get(recipe, 3)
    assert page.run(f"document.querySelectorAll('{PLOTS}').length") >= least_n
    assert "alert(1)" in page.run("document.body.innerText")
    page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    hovered = page.run(HOVERS)
    assert len(hovered) >= least_n
    # Plotly sets text in tspans; elements of any other kind would be those of a name.
    assert [tags for tags in hovered if set(tags) - {"tspan"}] == []
    assert page.event_params("Runtime.exceptionThrown") == []
    assert_quiet(page, "file:")


@pytest.mark.nightly
@needs_lab
def test_no_name_does_anything_in_jupyterlab(made, lab, lab_page):
    show_in_lab(lab_page, "hostile/llm_hotspots")
    drawn(lab_page, figures_n(made / "hostile" / "llm_hotspots"))
    assert "alert(1)" in lab_page.run("document.querySelector('.jp-Notebook').innerText")
    assert_quiet(lab_page, lab.address)


@pytest.mark.nightly
def test_a_name_that_is_let_loose_would_be_seen(page, tmp_path):
    (tmp_path / "page.html").write_text(
        "<body><img src=x onerror=alert(1)><a href='javascript:alert(2)'>x</a>", encoding="utf-8"
    )
    page.open((tmp_path / "page.html").as_uri())
    page.wait("document.querySelector('a') && document.readyState === 'complete'")
    assert [event["message"] for event in page.event_params("Page.javascriptDialogOpening")] == [
        "1"
    ]
    assert page.requested(lambda url: url.endswith("page.html")) == [(tmp_path / "x").as_uri()]
    assert len(page.run(TRACES)) == 2


@pytest.fixture(autouse=True)
def no_leftovers(request):
    """Leave nothing of a run of cells behind for the next test."""
    yield
    if "made" in request.fixturenames:
        folder = request.getfixturevalue("made")
        for path in folder.rglob(".ipynb_checkpoints"):
            shutil.rmtree(path, ignore_errors=True)
