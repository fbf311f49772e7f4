"""Makes the pictures of the README and of docs/ from the demo set, in a real browser.

    python tests/browser/pictures.py

Needs Chromium (found as the tests find it) and JupyterLab. Writes docs/notebook.png, the notebook
of llm_hotspots in JupyterLab, and docs/RECIPE.png, the top of the page of each recipe in `FIGURES`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from devtools import Browser, find_chromium  # noqa: E402
from lab_server import Lab  # noqa: E402
from results import analyse  # noqa: E402

from nsys_llm.testing.demo import write_demo  # noqa: E402

#: What each picture shows of a page: its head, and the figure that people know the recipe by.
FIGURES = {
    "llm_overview": "Timeline",
    "llm_hotspots": "Categories",
    "tail_stats": "Stragglers",
    "idle_gaps": "Causes of idle time",
    "nvtx_phase_attribution": "Phases",
    "step_budget": "Steps of the job",
    "trace_diff": "Kernels",
}
#: Leaves the head and one section with one figure (of the timeline two), and folds all findings but
#: the first.
FOCUS = """title => {
  const all = [...document.body.children];
  const at = all.findIndex(one => one.tagName === 'H2' && one.textContent === title);
  const below = all.slice(at).filter(one => one.classList.contains('figure'));
  const figures = below.slice(0, title === 'Timeline' ? 2 : 1);
  const found = all.findIndex(one => one.tagName === 'H2' && /^Findings/.test(one.textContent));
  const head = all.findIndex((one, index) => index > found && /^(H2|DETAILS)$/.test(one.tagName));
  let folded = 0;
  all.forEach((one, index) => {
    if (one.tagName === 'DETAILS') one.open = one.id !== 'more' && folded++ === 0;
    const text = index < head && !one.classList.contains('figure');
    const kept = text || one.tagName === 'DETAILS' || index === at || figures.includes(one);
    if (!kept) one.hidden = true;
  });
  dispatchEvent(new Event('resize'));
}"""


def main() -> None:
    program = find_chromium()
    if program is None:
        raise SystemExit("no Chromium was found.")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        write_demo(folder / "demo")
        for recipe in FIGURES:
            runs = ("baseline", "after_fix") if recipe == "trace_diff" else ("baseline",)
            inputs = [folder / "demo" / name for name in runs]
            analyse(folder / recipe, *inputs, options=["--html"], recipe=recipe)
        with Browser(program, folder / "profile") as browser:
            _picture_notebook(browser, folder)
            for recipe, title in FIGURES.items():
                _picture_page(browser, folder / recipe, title)


def _picture_page(browser: Browser, folder: Path, title: str) -> None:
    page = browser.page(1200, 1000)
    page.open((folder / "report.html").as_uri())
    page.wait("document.documentElement.dataset.drawn")
    page.run(f"({FOCUS})({title!r})")
    page.resize(1200, page.run("Math.ceil(document.body.getBoundingClientRect().bottom) - 40"))
    page.wait("new Promise(done => setTimeout(() => done(true), 800))")
    (ROOT / "docs" / f"{folder.name}.png").write_bytes(page.screenshot())
    page.close()


def _picture_notebook(browser: Browser, folder: Path) -> None:
    with Lab(folder, folder / "lab") as lab:
        page = browser.page(1200, 900)
        page.open(f"{lab.address}/lab/tree/llm_hotspots/analysis.ipynb?reset")
        page.wait("window.jupyterapp && document.querySelector('.jp-MarkdownOutput h1')", 60)
        page.wait("document.querySelectorAll('.main-svg').length > 20")
        page.wait("jupyterapp.shell.currentWidget.sessionContext.kernelDisplayStatus === 'idle'")
        page.run("jupyterapp.shell.collapseLeft()")
        page.wait("new Promise(done => setTimeout(() => done(true), 1500))")
        (ROOT / "docs" / "notebook.png").write_bytes(page.screenshot())
        page.close()


if __name__ == "__main__":
    main()
