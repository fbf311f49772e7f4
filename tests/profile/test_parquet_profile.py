"""The parquet reader: the same values as from SQLite, and what it says of damaged folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.column_rows import ColumnRows
from nsys_llm.profile.parquet_profile import ParquetProfile

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture
def export(tmp_path) -> Path:
    return one_kernel().write_parquet(tmp_path / "r_pqtdir")


def one_kernel() -> TraceBuilder:
    profile = TraceBuilder(duration_ns=99).kernel("a", start_ns=1, duration_ns=4, launch=(0, 1))
    return profile.raw(KERNEL, start=7, end=9, globalPid=None, demangledName="b", shortName="b")


def replace(folder: Path, table: str, **columns: pa.Array) -> None:
    pq.write_table(pa.table(columns), folder / f"{table}.parquet")


def explained(folder: Path) -> str:
    """Open a folder that cannot be read, and return the one line that says why."""
    with pytest.raises(ProfileError) as caught, ParquetProfile(folder) as profile:
        profile.read("kernels", ("start_ns",))
    assert "\n" not in caught.value.message
    assert folder.name in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_table_that_is_no_file_is_refused(tmp_path, make):
    folder = one_kernel().write_parquet(tmp_path / "r_pqtdir")
    (folder / "StringIds.parquet").unlink()
    make(folder / "StringIds.parquet")
    with pytest.raises(ProfileError, match=r"r_pqtdir/StringIds\.parquet: not a file"):
        ParquetProfile(folder)


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.one_of(st.integers(0, 2**64 - 1), st.none()), max_size=9))
@example(values=[2**63 + 5, 2**64 - 1, None, 0])
def test_unsigned_identifiers_keep_their_bits(tmp_path, values):
    # -2^63 is what NULL becomes, so this one id is not told from NULL.
    values = [value for value in values if value != 2**63]
    folder = tmp_path / "r_pqtdir"
    folder.mkdir(exist_ok=True)
    replace(folder, "StringIds", id=pa.array([], "int32"), value=pa.array([], "string"))
    replace(folder, KERNEL, globalPid=pa.array(values, "uint64"))
    with ParquetProfile(folder) as profile:
        pids = profile.read("kernels", ("global_pid",))["global_pid"].tolist()
    signed = [value if value is None or value < 2**63 else value - 2**64 for value in values]
    assert pids == [NULL_INT if value is None else value for value in signed]


@pytest.mark.parametrize("kind", ["int8", "uint16", "int32", "uint32", "int64", "null"])
def test_integers_of_every_width_are_read_and_a_column_without_a_type_is_null(export, kind):
    values = [None] * 3 if kind == "null" else [1, None, 100]
    replace(export, KERNEL, start=pa.array(values, kind))
    with ParquetProfile(export) as profile:
        read = profile.read("kernels", ("start_ns",))["start_ns"].tolist()
    assert read == [NULL_INT if value is None else value for value in values]
    replace(export, KERNEL, start=pa.array([True]))
    assert "integers belong" in explained(export)


@given(
    st.lists(st.one_of(st.integers(0, 2), st.none()), max_size=20),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_row_groups_together_are_the_table(tmp_path_factory, values, group_rows, rows_at_a_time):
    folder = tmp_path_factory.mktemp("r") / "r_pqtdir"
    folder.mkdir()
    replace(folder, "StringIds", id=pa.array([], "int32"), value=pa.array([], "string"))
    texts = [None if value is None else f"t{value}" for value in values]
    written = pa.table(
        {
            "start": pa.array(values, "int64"),
            "globalTid": pa.array([2**63 + 5] * len(values), "uint64"),
            "text": pa.array(texts, "string"),
        }
    )
    pq.write_table(written, folder / "NVTX_EVENTS.parquet", row_group_size=group_rows)
    with pytest.MonkeyPatch.context() as patch, ParquetProfile(folder) as profile:
        patch.setattr("nsys_llm.profile.parquet_profile._ROWS_AT_A_TIME", rows_at_a_time)
        rows = profile.read("nvtx_events", ("start_ns", "global_tid", "text"))
    assert rows["start_ns"].tolist() == [NULL_INT if value is None else value for value in values]
    assert rows["text"].tolist() == texts
    assert rows["global_tid"].tolist() == [5 - 2**63] * len(values)
    assert rows["global_tid"].strides == (0,) or not values  # one value, and no memory


@pytest.mark.parametrize("said_n", [-12_345, 12_000, 12_346])
def test_a_file_that_says_other_rows_than_its_groups_have_is_damaged(export, said_n):
    rows_n, file = 12_345, export / f"{KERNEL}.parquet"
    pq.write_table(pa.table({"start": np.arange(rows_n)}), file)
    content = bytearray(file.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    # The file's number of rows stands ahead of those of its groups and columns.
    at = content.index(thrift(rows_n), footer)
    content[at : at + len(thrift(rows_n))] = thrift(said_n)
    file.write_bytes(content)
    assert pq.read_metadata(file).num_rows == said_n
    assert "rows" in explained(export)


def thrift(number: int) -> bytes:
    """Return a 64-bit field of Thrift's compact protocol: its head, and seven bits a byte."""
    left, parts = (number << 1) ^ (number >> 63), []
    while left > 127:
        parts.append(left & 127 | 128)
        left >>= 7
    return bytes([0x16, *parts, left])


def test_arrow_never_holds_more_than_some_row_groups(tmp_path, monkeypatch):
    rows_n, held = 400_000, []
    folder = tmp_path / "r_pqtdir"
    folder.mkdir()
    replace(folder, "StringIds", id=pa.array([], "int32"), value=pa.array([], "string"))
    names = {name: pa.array(np.arange(rows_n)) for name in ("start", "end", "correlationId")}
    pq.write_table(pa.table(names), folder / f"{KERNEL}.parquet", row_group_size=2_048)
    before = pa.total_allocated_bytes()
    add = ColumnRows.add
    monkeypatch.setattr(
        ColumnRows,
        "add",
        lambda column, part: (held.append(pa.total_allocated_bytes()), add(column, part)),
    )
    with ParquetProfile(folder) as profile:
        rows = profile.read("kernels", ("start_ns", "end_ns", "correlation_id"))
    assert rows["end_ns"].tolist() == list(range(rows_n))
    assert max(held) - before < 3 * 8 * rows_n / 2


def test_texts_of_every_arrow_type_are_read(export):
    for kind in ("string", "large_string"):
        replace(export, "PROCESSES", globalPid=pa.array([7]), name=pa.array(["x"], kind))
        with ParquetProfile(export) as profile:
            assert profile.read("processes", ("text",))["text"].tolist() == ["x"]


@pytest.mark.parametrize(
    "damage",
    [
        *(lambda whole, kept=kept: whole[:kept] for kept in (0, 3, 4, 100, -1)),
        lambda whole: whole.replace(b"shortName", b"short\xe5ame"),
    ],
)
def test_a_damaged_file_is_named(export, damage):
    file = export / f"{KERNEL}.parquet"
    file.write_bytes(damage(file.read_bytes()))
    assert f"r_pqtdir/{KERNEL}.parquet: cannot be read" in explained(export)


def test_a_table_with_a_column_twice_is_told(export):
    table = pq.read_table(export / f"{KERNEL}.parquet")
    again = table.append_column(table.field("start"), table["start"])
    pq.write_table(again, export / f"{KERNEL}.parquet")
    words = explained(export)
    assert f"r_pqtdir/{KERNEL}.parquet: cannot be read" in words
    assert "Column start" in words


def test_a_table_in_the_place_of_another_is_told(export):
    shutil.copy(export / "TARGET_INFO_SYSTEM_ENV.parquet", export / "StringIds.parquet")
    with ParquetProfile(export) as profile, pytest.raises(ProfileError, match="Column id"):
        profile.texts(np.array([1]))


def test_what_is_no_text_where_texts_belong_is_told(export):
    replace(export, "StringIds", id=pa.array([1]), value=pa.array([1]))
    with ParquetProfile(export) as profile, pytest.raises(ProfileError, match="StringIds"):
        profile.texts(np.array([1]))


def change(export: Path, how: str, other: Path) -> None:
    """Do to an export what its writer may do."""
    strings = export / "StringIds.parquet"
    if how == "written to":
        replace(export, "StringIds", id=pa.array([1]), value=pa.array(["other"]))
    elif how == "another in its place":
        os.replace(other / "StringIds.parquet", strings)
    elif how == "one more":
        os.link(strings, export / "StringIds2.parquet")
    elif how == "one less":
        strings.unlink()
    else:
        shutil.rmtree(export)


def read_while(export: Path, action: Callable[[], None], *, reads: bool = True) -> None:
    """Read one table, let something happen, and read another one or none."""
    with ParquetProfile(export) as profile:
        assert profile.read("kernels", ("end_ns",))["end_ns"].tolist() == [5, 9]
        action()
        if reads:
            profile.texts(np.array([1]))


@pytest.mark.parametrize(
    "how", ["written to", "another in its place", "one more", "one less", "all gone"]
)
@pytest.mark.parametrize("reads", [True, False])
def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path, export, how, reads):
    other = TraceBuilder().kernel("b", start_ns=1, duration_ns=9).write_parquet(tmp_path / "other")
    with pytest.raises(ProfileError, match=r"r_pqtdir: changed while it was read; wait"):
        read_while(export, lambda: change(export, how, other), reads=reads)
