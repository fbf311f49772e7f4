"""The facts of a capture, and that nothing else of the recorded environment gets anywhere."""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_builder import TraceBuilder

from nsys_llm.profile.capture import RANK_VARIABLES, CaptureFacts, read_facts
from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.testing.trace_metadata import global_tid

TOKEN = "hf_SECRET0123456789"
PIN = "98765432109"
KINDS = ("sqlite", "parquet")


def write(profile: TraceBuilder, folder: Path, kind: str, name: str = "r") -> Path:
    if kind == "sqlite":
        return profile.write_sqlite(folder / f"{name}.sqlite")
    return profile.write_parquet(folder / f"{name}_pqtdir")


def facts_of(path: Path) -> CaptureFacts:
    with (ParquetProfile if path.is_dir() else SqliteProfile)(path) as profile:
        return read_facts(profile)


@pytest.mark.parametrize("kind", KINDS)
def test_the_facts_are_those_of_the_profile(tmp_path, kind):
    profile = TraceBuilder(
        hostname="n7", driver_version="550.1", utc_epoch_ns=17, system_clock_ns=19, duration_ns=9
    )
    profile.process(pid=5, name="server", gpu_ids=(0, 1)).process(pid=6, name="worker")
    facts = facts_of(write(profile, tmp_path, kind))
    assert facts.host == "n7"
    # The builder's machine records driver API version 12040, which is 12.4.
    assert (facts.driver_version, facts.cuda_version) == ("550.1", "12.4")
    assert facts.gpus == ("NVIDIA H100 80GB HBM3",) * 2
    assert (facts.nsys_version, facts.schema_version) == ("2026.2.1.210", "3.25.0")
    assert (facts.utc_epoch_ns, facts.system_clock_ns) == (17, 19)
    assert facts.processes == {global_tid(5): "server", global_tid(6): "worker"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("utc_ns", [17, None])
def test_a_clock_that_is_null_or_that_an_older_schema_lacks_is_none(tmp_path, kind, utc_ns):
    profile = TraceBuilder(schema="3.7.2", utc_epoch_ns=utc_ns)
    facts = facts_of(write(profile, tmp_path, kind))
    assert (facts.utc_epoch_ns, facts.system_clock_ns) == (utc_ns, None)


@pytest.mark.parametrize(("recorded", "level"), [("2", 2), ("-1", -1), ("0", 0), ("?", None)])
def test_what_linux_allows_to_be_sampled_is_its_level(tmp_path, recorded, level):
    path = write(TraceBuilder(), tmp_path, "sqlite")
    with closing(sqlite3.connect(path)) as database:
        update = "UPDATE TARGET_INFO_SYSTEM_ENV SET name = 'LinuxParanoidLevel', value = ?"
        database.execute(f"{update} WHERE name = 'OsDescription'", (recorded,))
        database.commit()
    assert facts_of(path).paranoid_level == level


@pytest.mark.parametrize("kind", KINDS)
def test_a_profile_that_says_nothing_of_itself_has_no_facts(tmp_path, kind):
    profile = TraceBuilder(lazy=False).kernel("k", start_ns=1, duration_ns=1)
    for table in (
        "TARGET_INFO_SYSTEM_ENV",
        "TARGET_INFO_GPU",
        "TARGET_INFO_SESSION_START_TIME",
        "META_DATA_CAPTURE",
        "META_DATA_EXPORT",
        "PROCESSES",
        "MPI_RANKS",
        "ANALYSIS_DETAILS",
        "TARGET_INFO_CUDA_DEVICE",
    ):
        profile.drop_table(table)
    facts = facts_of(write(profile, tmp_path, kind))
    assert {value for value in vars(facts).values() if value} == set()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("table", ["TARGET_INFO_SESSION_START_TIME", "PROCESSES"])
def test_columns_of_facts_that_are_not_there_are_no_error(tmp_path, kind, table):
    path = write(TraceBuilder().kernel("k", start_ns=1, duration_ns=1), tmp_path, kind)
    if kind == "parquet":
        pq.write_table(pa.table({"other": [1]}), path / f"{table}.parquet")
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"DROP TABLE {table}")
            database.execute(f"CREATE TABLE {table} (other INTEGER)")
            database.execute(f"INSERT INTO {table} VALUES (1)")
            database.commit()
    facts = facts_of(path)
    assert facts.host == "node1"
    if table == "PROCESSES":
        assert facts.processes == {}
    else:
        assert (facts.utc_epoch_ns, facts.system_clock_ns) == (None, None)


@pytest.mark.parametrize(
    ("number", "version"), [("12020", "12.2"), ("11080", "11.8"), ("13000", "13.0"), ("x", None)]
)
def test_the_cuda_version_is_decoded(tmp_path, number, version):
    profile = TraceBuilder().drop_table("TARGET_INFO_SYSTEM_ENV")
    path = write(profile, tmp_path, "parquet")
    rows = pa.table({"name": ["CudaDriverVersion"], "value": [number]})
    pq.write_table(rows, path / "TARGET_INFO_SYSTEM_ENV.parquet")
    assert facts_of(path).cuda_version == version


@pytest.mark.parametrize("version", ["3.7.2", "3.25.0"])
def test_the_way_of_tracing_graphs_is_found_in_every_version(tmp_path, version):
    profile = TraceBuilder(schema=version).graph_launch([("a", 1, 2)], launch=(0, 1), mode="node")
    prefix = "PROCESS_0:" if version == "3.7.2" else ""
    profile.capture_option(f"{prefix}CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node")
    assert facts_of(write(profile, tmp_path, "sqlite")).graph_mode == "node"


@pytest.mark.parametrize("kind", KINDS)
def test_mpi_ranks_belong_to_processes(tmp_path, kind):
    profile = TraceBuilder().process(pid=5).mpi_rank(55, 3).process(pid=6).mpi_rank(66, 0)
    facts = facts_of(write(profile, tmp_path, kind))
    assert facts.mpi_ranks == {global_tid(5): 3, global_tid(6): 0}


@pytest.mark.parametrize(
    ("values", "read"),
    [
        (("12", "13", "14", "15", "16"), (12, 13, 14, 15, 16)),
        (("", "x", "-1", "1.0", "0x1"), ()),
        ((" ", TOKEN, "", "", "3"), (3,)),
    ],
)
def test_rank_variables_are_kept_where_they_are_numbers(tmp_path, values, read):
    profile = TraceBuilder().environment(LOCAL_RANK="1", RANKS="2", rank="3")
    profile.environment(**dict(zip(RANK_VARIABLES, values, strict=True)))
    known = facts_of(write(profile, tmp_path, "sqlite")).rank_variables
    assert known == dict(zip(RANK_VARIABLES[-len(read) :] if read else (), read, strict=True))


def tell_tale(rank: int) -> TraceBuilder:
    """Return a profile whose environment holds a token in many places."""
    profile = TraceBuilder().kernel("k", start_ns=1, duration_ns=2 + rank, launch=(0, 1))
    profile.environment(RANK=str(rank), HF_TOKEN=TOKEN, RANK_TOKEN=TOKEN, LOCAL_RANK=TOKEN, PIN=PIN)
    profile.environment(SLURM_PROCID=TOKEN, MULTI=f"a\nRANK={TOKEN}")
    return profile.capture_option("PROCESS_0:ARGUMENT_1", f"--token={TOKEN}").capture_option(
        "PROCESS_0:COMMAND", TOKEN
    )


@pytest.mark.parametrize("kind", KINDS)
def test_facts_hold_no_other_variable(tmp_path, kind):
    facts = facts_of(write(tell_tale(0), tmp_path, kind))
    for secret in (TOKEN, PIN):
        assert secret not in repr(facts)
        assert secret.encode() not in pickle.dumps(facts)
    assert set(facts.rank_variables) <= set(RANK_VARIABLES)


@pytest.mark.parametrize("kind", KINDS)
def test_gpus_are_known_by_both_tables_of_them_and_slices_by_their_own_id(tmp_path, kind):
    profile = (
        TraceBuilder(duration_ns=9_000).process(pid=7, gpu_ids=(3, 4)).process(pid=8, gpu_ids=(3,))
    )
    facts = facts_of(write(profile.kernel("k", start_ns=1, duration_ns=1, pid=7), tmp_path, kind))
    assert facts.duration_ns == 9_000
    gpu_of = facts.gpu_of
    assert gpu_of[7, 0] == gpu_of[8, 0] != gpu_of[7, 1]
    profile.drop_table("TARGET_INFO_CUDA_DEVICE")
    (tmp_path / "bare").mkdir()
    assert facts_of(write(profile, tmp_path / "bare", kind)).gpu_of == {}


def test_places_of_gpus_are_those_of_one_machine(tmp_path):
    found = []
    for host in ("node1", "node2"):
        profile = TraceBuilder(hostname=host).process(pid=7).kernel("k", start_ns=1, duration_ns=1)
        path = write(profile, tmp_path, "sqlite", host)
        with closing(sqlite3.connect(path)) as database:
            for table in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"):
                database.execute(f"UPDATE {table} SET uuid = ''")
            database.commit()
        found.append(facts_of(path).gpu_of[7, 0])
    assert len(set(found)) == 2
