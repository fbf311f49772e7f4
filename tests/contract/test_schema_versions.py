"""The same events give the same tables, whatever schema version and kind of export holds them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from command_line import rows, run
from effort import nightly_but
from quick_run import quick
from results import plain
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.testing.trace_schema import ExportSchema, schema_versions

VERSIONS = schema_versions()
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
RECIPES = recipe_names()
PHASES = "nvtx_phase_attribution"
KINDS = ("sqlite", "sqlite_lazy", "parquet")
EXPORTS = [(version, kind) for version in VERSIONS for kind in KINDS]
OPTIONS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "base names": ("--base",),
    "mangled names": ("--mangled",),
    "window": ("--filter-time", "12/48"),
    "range": ("--filter-nvtx", "step"),
    "projected": ("--filter-projected-nvtx", "ncclGroup@NCCL"),
    "device": ("--device", "1"),
}
RANGES = ("range", "projected")

# At night every recipe, version and kind, and options where the oldest and the newest meet each
# reader. CI takes the recipes in turn over the oldest and the newest, and each option once.
ENDS = ((OLDEST, "sqlite_lazy"), (OLDEST, "parquet"), (NEWEST, "parquet"))
PLAIN = [(recipe, *export, "plain") for recipe in RECIPES for export in EXPORTS]
WITH_OPTIONS = [
    (recipe, *end, name)
    for recipe in RECIPES
    for end in ENDS
    for name in OPTIONS
    # Ranges without collectives, on ranks without a steady clock: no clock is common to them.
    if recipe not in ("llm_overview", "step_budget") or end[0] != OLDEST or name not in RANGES
]
IN_CI = [(recipe, *end, "plain") for recipe, end in zip(RECIPES, cycle(ENDS), strict=False)]
IN_CI += [("llm_hotspots", *end, name) for name, end in zip(OPTIONS, cycle(ENDS), strict=False)][1:]
CASES = nightly_but(dict.fromkeys([*PLAIN, *WITH_OPTIONS]), IN_CI)

#: Facts that differ between versions and kinds by their nature.
OWN_FACTS = {
    "files": {
        "nsys_version",
        "schema_version",
        # Parquet of 2023.4 records no environment, and older exports no steady clock.
        "rank_source",
        "clock_source",
    },
    # A lazy export leaves out tables without rows, and older ones know no whole graphs.
    "coverage": {"table_present"},
    # Older exports have no steady clock.
    "rank_clocks": {"source", "collectives_n"},
    "gpu_metrics": {"gpu_source"},
    # Nor which GPU a device of a process is.
    "ranks": {"gpu"},
    # Parquet of 2023.4 does not say what was traced.
    "findings": {"record"},
    "all_findings": {"record"},
    "opportunities": {"record"},
}
#: What trace_diff tells of the exports themselves.
OWN_CHECKS = {"exported by nsys", "export schema", "traced", "ranks"}

#: The syncType of a device synchronisation as CUPTI documents it, and "not applicable".
CONTEXT_SYNC, NO_EVENT = 4, 4294967295


def knows_nodes(schema: ExportSchema) -> bool:
    """Return whether exports of a version were seen that hold the creation of a graph's nodes.

    Only lazy exports of 2024.6 and 2025.1 were, of programs without any.
    """
    columns = {column.name for column in schema.tables["CUDA_GRAPH_EVENTS"]}
    return "CUDA_GRAPH_NODE_EVENTS" in schema.tables or "originalGraphNodeId" in columns


def events(version: str, *, lazy: bool, rank: int = 0, nodes: bool = True) -> TraceBuilder:
    """Return a rank with two devices, copies, a graph traced by nodes, ranges, and odd rows."""
    report = TraceBuilder(schema=version, lazy=lazy, duration_ns=99).environment(RANK=str(rank))
    report.process(pid=100 + rank, name="server", gpu_ids=(0, 1))
    report.kernel(
        "void k<int>(int)", start_ns=10, duration_ns=5 + rank, launch=(2, 4), mangled_name="_Z1k"
    )
    report.kernel("void k<int>(int)", start_ns=13, duration_ns=9, launch=(5, 6), stream_id=8)
    report.kernel("nvjet_hsh_128x64_64x4_1x2_h_bz_TNT", start_ns=30, duration_ns=4)
    report.kernel("ncclDevKernel_AllReduce", start_ns=40, duration_ns=20, device_id=1)
    report.graph_launch([("g1", 70, 73), ("g2", 74, 80)], launch=(60, 65))
    report.memcpy("HtoD", start_ns=25, duration_ns=4, size_bytes=64, launch=(7, 8))
    report.memset(start_ns=28, duration_ns=3, size_bytes=16, launch=(9, 10))
    report.api("cudaDeviceSynchronize_v3020", start_ns=66, end_ns=90)
    report.nvtx("step", 1, 7).nvtx("step", 8, 68).nvtx("open", 0, None)
    report.nvtx("ncclGroup", 8, 12, domain="NCCL", registered=True)
    kernel = "CUPTI_ACTIVITY_KIND_KERNEL"
    report.raw(kernel, start=9, end=5, demangledName="broken", shortName="broken")
    report.raw(kernel, start=82, end=84, demangledName=4711, shortName=4711)
    report.raw(kernel, start=85, end=85, demangledName="zero", shortName="zero")
    return measured(report, ExportSchema.load(version), nodes=nodes)


def measured(report: TraceBuilder, schema: ExportSchema, *, nodes: bool) -> TraceBuilder:
    """Add what versions write in ways of their own, and what a capture measures beside events."""
    # g3, launched by a thread without ranges, was captured as node 11 inside of "prefill".
    report.nvtx("prefill", 1, 2)
    if nodes and knows_nodes(schema):
        report.graph_node(11, start_ns=1)
        report.graph_node((2 << 32) + 1, start_ns=3, original_node_id=11)
    report.graph_launch([("g3", 81, 82)], launch=(69, 70), graph_exec_id=2, tid=9)
    if any(column.name == "graphExecId" for column in schema.tables["CUDA_GRAPH_EVENTS"]):
        report.raw("CUDA_GRAPH_EVENTS", start=1, end=2, nameId="Graph", graphId=1, graphExecId=2)
    code = schema.sync_codes.get("cudaDeviceSynchronize", CONTEXT_SYNC)
    waited = {"start": 66, "end": 90, "syncType": code, "eventId": NO_EVENT}
    report.raw("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **waited)
    report.overhead(schema.buffer_flush, start_ns=62, end_ns=65, overhead_type=3)
    report.osrt("poll", start_ns=86, end_ns=89)
    report.thread_switch(start_ns=0, goes_on=True).thread_switch(start_ns=67, goes_on=False)
    report.allocate(2048, address=4096, at_ns=3).free(2048, address=4096, at_ns=95)
    return report.gpu_metrics({"SMs Active [Throughput %]": (40, 60)}, times_ns=(20, 50), gpu_id=1)


def exported(report: TraceBuilder, folder: Path, name: str, kind: str) -> Path:
    folder.mkdir(exist_ok=True)
    if kind == "parquet":
        return report.write_parquet(folder / f"{name}_pqtdir")
    return report.write_sqlite(folder / f"{name}.sqlite")


def results(recipe: str, folder: Path, *options: str) -> dict[str, dict[str, list[Any]]]:
    """Return all tables of a folder of reports, without what differs by nature.

    What is compared is the folder and itself, where a recipe compares.
    """
    sides = [folder, folder] if load_manifest(recipe).sided else [folder]
    frames = quick(recipe, *sides, *options)
    if "comparability" in frames:
        checks = frames["comparability"]
        frames["comparability"] = checks[~checks["check"].isin(OWN_CHECKS)]
    tables = {name: plain(frame) for name, frame in frames.items()}
    return {
        name: {key: cells for key, cells in table.items() if key not in OWN_FACTS.get(name, ())}
        for name, table in tables.items()
    }


def by_row(table: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> Mapping[tuple[str, str], Path]:
    """Return a folder of two ranks by version and kind of export."""
    made = {}
    for version, kind in EXPORTS:
        folder = made[version, kind] = tmp_path_factory.mktemp(f"{version}_{kind}")
        for rank in (0, 1):
            report = events(version, lazy=kind == "sqlite_lazy", rank=rank)
            exported(report, folder, f"rank{rank}", kind)
    return made


@pytest.fixture(scope="module")
def expected(exports, tmp_path_factory) -> Any:
    """Return what gives the tables of a full SQLite export of one version, by recipe and options.

    Those of an export with or without the creation of nodes. Each is made once, when first asked
    for.
    """
    made = {}
    without = tmp_path_factory.mktemp("without_nodes")
    for rank in (0, 1):
        report = events("3.25.0", lazy=False, rank=rank, nodes=False)
        exported(report, without, f"rank{rank}", "sqlite")
    folders = {True: exports["3.25.0", "sqlite"], False: without}

    def tables(recipe: str, options: str, *, nodes: bool = True) -> dict[str, dict[str, list[Any]]]:
        if (recipe, options, nodes) not in made:
            made[recipe, options, nodes] = results(recipe, folders[nodes], *OPTIONS[options])
        return made[recipe, options, nodes]

    return tables


@pytest.mark.nightly
def test_the_expected_tables_are_those_that_the_events_give(expected):
    def of_kernels(options: str, column: str) -> dict[str, Any]:
        kernels = expected("llm_hotspots", options)["kernels"]
        return dict(zip(kernels["name"], kernels[column], strict=True))

    # k: 5 + 9 ns on rank 0, 6 + 9 on rank 1; 13-15 (13-16) is shared, so the union is 12 ns each.
    total_ns = of_kernels("plain", "total_ns")
    assert total_ns["void k<int>(int)"] == 5 + 9 + 6 + 9
    assert of_kernels("plain", "exclusive_ns")["void k<int>(int)"] == 12 + 12
    assert of_kernels("plain", "launches_n")["[unknown name 4711]"] == 2
    assert total_ns["zero"] == 0
    assert "broken" not in total_ns
    assert {"_Z1k", "g1"} <= set(of_kernels("mangled names", "total_ns"))
    assert set(of_kernels("base names", "total_ns")) >= {"k", "g2"}
    # 12/48 cuts 10-15 to 3 (10-16 to 4) and 40-60 to 8 ns.
    window = of_kernels("window", "total_ns")
    assert window["void k<int>(int)"] == 3 + 9 + 4 + 9
    assert window["ncclDevKernel_AllReduce"] == 2 * 8
    # Launches at 2 and 5 lie in the first step; the graph's at 60 in the second.
    ranged = of_kernels("range", "launches_n")
    assert ranged == {"void k<int>(int)": 4, "g1": 2, "g2": 2}
    # Only the memset, launched at 9 (and run 28-31), lies in the NCCL range; with it runs nvjet.
    projected = of_kernels("projected", "total_ns")
    assert projected == {"nvjet_hsh_128x64_64x4_1x2_h_bz_TNT": 2}
    assert list(of_kernels("device", "total_ns")) == ["ncclDevKernel_AllReduce"]


@pytest.mark.nightly
def test_what_versions_write_in_ways_of_their_own_is_in_the_expected_tables(expected):
    hotspots = expected("llm_hotspots", "plain")
    flush = by_row(hotspots["overheads"])[0]
    # 62-65, while nothing ran.
    assert (flush["rank"], flush["owner"], flush["union_ns"]) == (0, "profiler", 3)
    assert hotspots["memory"]["rank"]
    assert hotspots["gpu_metrics"]["rank"]
    # g3 of both ranks, by the range in which it was captured.
    phases = {row["phase"]: row["gpu_ns"] for row in by_row(expected(PHASES, "plain")["phases"])}
    assert phases["prefill"] == 2
    parts = by_row(expected(PHASES, "plain")["attribution"])
    assert [row["gpu_ns"] for row in parts if row["part"] == "graph_capture"] == [1, 1]


@pytest.mark.nightly(
    "llm_hotspots-3.30.1-parquet-mangled names",
    "llm_hotspots-3.7.2-sqlite_lazy-window",
    "llm_hotspots-3.7.2-parquet-range",
    "llm_overview-3.7.2-sqlite_lazy-plain",
)
@pytest.mark.parametrize(("recipe", "version", "kind", "options"), CASES)
def test_every_version_and_kind_gives_the_same_tables(
    exports, expected, recipe, version, kind, options
):
    tables = results(recipe, exports[version, kind], *OPTIONS[options])
    same = expected(recipe, options, nodes=knows_nodes(ExportSchema.load(version)))
    assert tables.keys() == same.keys()
    for name, table in tables.items():
        assert table == same[name], name


@pytest.mark.nightly
@pytest.mark.parametrize(("recipe", "kind"), list(zip(RECIPES, cycle(KINDS), strict=False)))
def test_versions_and_kinds_mix_in_one_run(tmp_path, expected, recipe, kind):
    exported(events(OLDEST, lazy=True), tmp_path / "ranks", "rank0", kind)
    second = events(NEWEST, lazy=False, rank=1)
    exported(second, tmp_path / "ranks", "rank1", KINDS[KINDS.index(kind) - 1])
    assert results(recipe, tmp_path / "ranks") == expected(recipe, "plain")


def test_runs_of_the_oldest_and_the_newest_version_compare_as_equal(exports):
    tables = quick("trace_diff", exports[OLDEST, "parquet"], exports[NEWEST, "sqlite_lazy"])
    checks = {row["check"]: row for row in by_row(plain(tables["comparability"]))}
    assert (checks["export schema"]["baseline"], checks["export schema"]["input"]) == (
        OLDEST,
        NEWEST,
    )
    assert {name for name, check in checks.items() if check["status"] != "same"} <= OWN_CHECKS
    assert set(tables["kernels"]["change_ns"]) == {0}
    assert set(tables["metrics"]["change"].dropna()) == {0.0}


def make_newer(path: Path) -> None:
    """Turn an SQLite export into one of a release that does not exist yet."""
    with closing(sqlite3.connect(path)) as database:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "StringIds", "PROCESSES"):
            database.execute(f"ALTER TABLE {table} ADD COLUMN future TEXT DEFAULT 'new'")
            database.execute(f"ALTER TABLE {table} ADD COLUMN futureNs REAL DEFAULT 0.5")
        database.executescript("""
            CREATE TABLE CUPTI_ACTIVITY_KIND_FUTURE (start INTEGER, "end" INTEGER, what BLOB);
            INSERT INTO CUPTI_ACTIVITY_KIND_FUTURE VALUES (1, 9, x'00');
            CREATE TABLE ENUM_FUTURE (id INTEGER, name TEXT) ;
            UPDATE META_DATA_EXPORT SET value = '4.1.0' WHERE name = 'EXPORT_SCHEMA_VERSION';
            UPDATE META_DATA_EXPORT SET value = '2031.1.1' WHERE name = 'EXPORT_PRODUCT_VERSION';
        """)
        database.commit()


@pytest.fixture(scope="module")
def newer(tmp_path_factory) -> Path:
    """Return a folder of two ranks of a release that does not exist yet."""
    folder = tmp_path_factory.mktemp("newer")
    for rank in (0, 1):
        report = events(NEWEST, lazy=False, rank=rank)
        make_newer(exported(report, folder, f"rank{rank}", "sqlite"))
    return folder


@pytest.mark.nightly("llm_overview")
@pytest.mark.parametrize("recipe", nightly_but(RECIPES, ("llm_overview", "trace_diff")))
def test_a_newer_schema_gives_the_same_tables(newer, expected, recipe):
    assert results(recipe, newer) == expected(recipe, "plain")


@pytest.mark.parametrize("recipe", nightly_but(RECIPES, ("llm_hotspots", "trace_diff")))
def test_a_newer_schema_is_read_with_a_note(tmp_path, newer, recipe):
    sides = [newer, newer] if load_manifest(recipe).sided else [newer]
    ended = run("--input", *sides, "--output", tmp_path / "out", recipe=recipe)
    assert (ended.code, ended.errors) == (0, [])
    assert [line for line in ended.said if "4.1.0" in line]
    assert {row["schema_version"] for row in rows(tmp_path / "out", "files")} == {"4.1.0"}
