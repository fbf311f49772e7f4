"""The same events give the same tables, whatever schema version and kind of export holds them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import row, rows, run

from nsys_llm.manifest import load_manifest
from nsys_llm.trace_builder import TraceBuilder

VERSIONS = ("3.7.2", "3.24.14", "3.25.0", "3.30.1")
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

# Every version and kind, and for the other options the oldest and the newest of each reader.
CASES = [(*export, "plain") for export in EXPORTS]
CASES += [
    (version, kind, options)
    for options in OPTIONS
    if options != "plain"
    for version, kind in (("3.7.2", "sqlite_lazy"), ("3.7.2", "parquet"), ("3.30.1", "parquet"))
]

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
}


def events(version: str, *, lazy: bool, rank: int = 0) -> TraceBuilder:
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
    return report.raw(kernel, start=85, end=85, demangledName="zero", shortName="zero")


def exported(report: TraceBuilder, folder: Path, name: str, kind: str) -> Path:
    folder.mkdir(exist_ok=True)
    if kind == "parquet":
        return report.write_parquet(folder / f"{name}_pqtdir")
    return report.write_sqlite(folder / f"{name}.sqlite")


def results(folder: Path, *options: str) -> dict[str, list[dict[str, Any]]]:
    """Analyse a folder of reports and return all tables, without what differs by nature."""
    out = folder / "out"
    found = run("--input", folder, "--output", out, *options)
    assert (found.code, found.said) == (0, [])
    tables = {table.file: rows(out, table.file) for table in load_manifest("llm_hotspots").writes}
    return {
        name: [
            {key: cell for key, cell in one.items() if key not in OWN_FACTS.get(name, ())}
            for one in table
        ]
        for name, table in tables.items()
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> Mapping[str, dict[str, list[dict[str, Any]]]]:
    """Return the tables of a full SQLite export of one version, by options."""
    made = {}
    for name, options in OPTIONS.items():
        folder = tmp_path_factory.mktemp("expected")
        for rank in (0, 1):
            exported(events("3.25.0", lazy=False, rank=rank), folder, f"rank{rank}", "sqlite")
        made[name] = results(folder, *options)
    return made


def test_the_expected_tables_are_those_that_the_events_give(expected):
    # k: 5 + 9 ns on rank 0, 6 + 9 on rank 1; 13-15 (13-16) is shared, so the union is 12 ns each.
    kernels = {one["name"]: one for one in expected["plain"]["kernels"]}
    assert kernels["void k<int>(int)"]["total_ns"] == 5 + 9 + 6 + 9
    assert kernels["void k<int>(int)"]["exclusive_ns"] == 12 + 12
    assert kernels["[unknown name 4711]"]["launches_n"] == 2
    assert kernels["zero"]["total_ns"] == 0
    assert "broken" not in kernels
    names = {one["name"] for one in expected["mangled names"]["kernels"]}
    assert {"_Z1k", "g1"} <= names
    assert {one["name"] for one in expected["base names"]["kernels"]} >= {"k", "g2"}
    # 12/48 cuts 10-15 to 3 (10-16 to 4) and 40-60 to 8 ns.
    window = {one["name"]: one["total_ns"] for one in expected["window"]["kernels"]}
    assert window["void k<int>(int)"] == 3 + 9 + 4 + 9
    assert window["ncclDevKernel_AllReduce"] == 2 * 8
    # Launches at 2 and 5 lie in the first step; the graph's at 60 in the second.
    ranged = {one["name"]: one["launches_n"] for one in expected["range"]["kernels"]}
    assert ranged == {"void k<int>(int)": 4, "g1": 2, "g2": 2}
    # Only the memset, launched at 9 (and run 28-31), lies in the NCCL range; with it runs nvjet.
    projected = {one["name"]: one["total_ns"] for one in expected["projected"]["kernels"]}
    assert projected == {"nvjet_hsh_128x64_64x4_1x2_h_bz_TNT": 2}
    device = [one["name"] for one in expected["device"]["kernels"]]
    assert device == ["ncclDevKernel_AllReduce"]


@pytest.mark.parametrize(("version", "kind", "options"), CASES)
def test_every_version_and_kind_gives_the_same_tables(tmp_path, expected, version, kind, options):
    for rank in (0, 1):
        report = events(version, lazy=kind == "sqlite_lazy", rank=rank)
        exported(report, tmp_path / "ranks", f"rank{rank}", kind)
    found = results(tmp_path / "ranks", *OPTIONS[options])
    assert found.keys() == expected[options].keys()
    for name, table in found.items():
        assert table == expected[options][name], name


@pytest.mark.parametrize(("version", "kind"), EXPORTS)
def test_the_version_of_the_export_is_recorded(tmp_path, version, kind):
    exported(events(version, lazy=kind == "sqlite_lazy"), tmp_path / "r", "r", kind)
    assert run("--input", tmp_path / "r", "--output", tmp_path / "out").code == 0
    recorded = row(tmp_path / "out", "files")
    assert recorded["schema_version"] == version
    assert recorded["rank_source"] == ("index" if kind == "parquet" else "env:RANK")


@pytest.mark.parametrize("kind", KINDS)
def test_versions_and_kinds_mix_in_one_run(tmp_path, expected, kind):
    first = exported(events("3.7.2", lazy=True), tmp_path / "ranks", "rank0", kind)
    second = events("3.30.1", lazy=False, rank=1)
    exported(second, tmp_path / "ranks", "rank1", KINDS[KINDS.index(kind) - 1])
    assert first.exists()
    assert results(tmp_path / "ranks") == expected["plain"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["node", "graph"])
def test_a_graph_counts_once_or_is_known_to_be_hidden(tmp_path, version, mode):
    report = TraceBuilder(schema=version)
    report.graph_launch([("g1", 10, 13), ("g2", 14, 20)], launch=(1, 5), mode=mode)
    report.kernel("k", start_ns=30, duration_ns=2, launch=(6, 7))
    report.write_sqlite(tmp_path / "r.sqlite")
    assert run("--input", tmp_path / "r.sqlite", "--output", tmp_path / "out").code == 0
    graph = row(tmp_path / "out", "coverage", op="graph")
    kernel = row(tmp_path / "out", "coverage", op="kernel")
    busy_ns = row(tmp_path / "out", "devices")["busy_ns"]
    if mode == "node":
        # Nodes of 3 and 6 ns, and k.
        assert (kernel["total_n"], kernel["graph_node_n"], busy_ns) == (3, 2, 3 + 6 + 2)
        assert (graph["total_n"], graph["opaque_graph_launches_n"]) == (0, 0)
    elif version == "3.7.2":
        assert (graph["total_n"], graph["opaque_graph_launches_n"], busy_ns) == (0, 1, 2)
    else:
        # One row for the whole graph, 10-20.
        assert (graph["total_ns"], graph["opaque_graph_launches_n"], busy_ns) == (10, 0, 10 + 2)


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


def test_a_newer_schema_is_read_with_a_note(tmp_path, expected):
    for rank in (0, 1):
        report = events("3.30.1", lazy=False, rank=rank)
        make_newer(exported(report, tmp_path, f"rank{rank}", "sqlite"))
    found = run("--input", tmp_path, "--output", tmp_path / "out")
    assert (found.code, found.errors) == (0, [])
    assert [line for line in found.said if "4.1.0" in line]
    recorded = rows(tmp_path / "out", "files")
    assert {one["schema_version"] for one in recorded} == {"4.1.0"}
    assert rows(tmp_path / "out", "kernels") == expected["plain"]["kernels"]
