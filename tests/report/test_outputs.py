"""Tables are written as declared: types, nulls, units and meanings, and nothing else."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsys_llm.core.errors import ManifestError
from nsys_llm.manifest.declared import Column, TableWrite
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.report.outputs import declared_frame, write_tables

NAME = Column("name", "string", "Kernel name.", nullable=False)
TOTAL = Column("total_ns", "int64", "Sum of durations.", nullable=False, unit="ns")
MEAN = Column("mean_ns", "float64", "Mean duration.", nullable=True, unit="ns")
GRAPH = Column("graph", "bool", "Whether it is a graph node.", nullable=True)
OTHER = Column("other", "string", "Another name.", nullable=True)
TABLE = TableWrite("kernels", "one kernel", (NAME, TOTAL, MEAN, GRAPH, OTHER))
INDEXED = TableWrite("all_stats", "one kernel", (NAME, TOTAL), index="name")
CELLS = {
    "name": ["a", "b"],
    "total_ns": [2**53 + 1, 4],
    "mean_ns": [1.5, None],
    "graph": [None, True],
    "other": [None, "c"],
}


def manifest(*tables):
    return Manifest("recipe", "title", "why?", "Class", "text", None, (), (), (), tables, ())


def one_column(dtype, *, nullable=True):
    return TableWrite("t", "row", (Column("x", dtype, "X.", nullable),))


def written(folder, table, frame, *, to_csv=False):
    write_tables(folder, manifest(table), {table.file: frame}, csv=to_csv)
    files = [f"{table.file}.parquet"] + [f"{table.file}.csv"] * to_csv
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)
    return pq.read_table(folder / f"{table.file}.parquet")


def csv_rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_columns_come_in_declared_order_and_type_whatever_the_order_given():
    shuffled = dict(reversed(CELLS.items()))
    frame = declared_frame(TABLE, shuffled)
    assert list(frame.columns) == list(CELLS)
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {
        "name": "string",
        "total_ns": "int64",
        "mean_ns": "Float64",
        "graph": "boolean",
        "other": "string",
    }


def test_every_parquet_field_carries_unit_and_meaning(tmp_path):
    schema = written(tmp_path, TABLE, declared_frame(TABLE, CELLS)).schema
    assert schema.names == [column.name for column in TABLE.columns]
    for column in TABLE.columns:
        field = schema.field(column.name)
        assert field.metadata[b"unit"].decode() == (column.unit or "")
        assert field.metadata[b"meaning"].decode() == column.meaning
        assert field.nullable == column.nullable
    types = [pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.string()]
    assert schema.types == types


def test_values_and_nulls_come_back_exactly(tmp_path):
    table = written(tmp_path, TABLE, declared_frame(TABLE, CELLS))
    # 2^53 + 1 is no double.
    assert table.to_pydict() == CELLS


def test_pandas_restores_types_from_the_record_that_it_would_have_written(tmp_path):
    optional = [Column(f"{column.name}_2", column.dtype, "X.", True) for column in TABLE.columns]
    table = TableWrite("kernels", "one kernel", (*TABLE.columns, *optional))
    cells = {column.name: CELLS[column.name.removesuffix("_2")] for column in table.columns}
    for rows_n in (1, 2):
        first = {name: values[:rows_n] for name, values in cells.items()}
        frame = declared_frame(table, first)
        theirs = pa.Table.from_pandas(frame, preserve_index=False)
        assert written(tmp_path, table, frame).schema.metadata == theirs.schema.metadata


def test_rows_are_columns_whose_gaps_are_null_and_what_is_not_declared_is_refused():
    columns = [Column(name, "int64", "X.", nullable=True) for name in ("x", "y")]
    table = TableWrite("t", "one", tuple(columns))
    by_rows = declared_frame(table, [{"x": 1}, {"y": 2}])
    by_columns = declared_frame(table, {"x": [1, None], "y": [None, 2]})
    pd.testing.assert_frame_equal(by_rows, by_columns)
    pd.testing.assert_frame_equal(declared_frame(table, []), declared_frame(table, {}))
    with pytest.raises(ManifestError, match="columns of different lengths"):
        declared_frame(table, {"x": [1], "y": []})
    with pytest.raises(ManifestError, match=r"differ in other\."):
        declared_frame(table, [{"x": 1, "y": 2}, {"x": 1, "other": None}])


def test_a_table_without_rows_has_no_file_and_keeps_its_types(tmp_path):
    empty = declared_frame(TABLE, {name: [] for name in CELLS})
    table = write_tables(tmp_path, manifest(TABLE), {TABLE.file: empty}, csv=True)[TABLE.file]
    assert (table.num_rows, list(tmp_path.iterdir())) == (0, [])
    assert table.schema.types == [pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.string()]


@pytest.mark.parametrize("values", [[1.0, float("nan")], np.array([1.0, np.nan]), [1.0, None]])
def test_not_a_number_is_null_in_a_table(tmp_path, values):
    frame = declared_frame(one_column("float64"), {"x": values})
    assert written(tmp_path, one_column("float64"), frame)["x"].to_pylist() == [1.0, None]


def test_the_index_is_written_as_nvidia_writes_it(tmp_path):
    cells = {"name": ["a", "b"], "total_ns": [3, 4]}
    table = written(tmp_path, INDEXED, declared_frame(INDEXED, cells))
    theirs = pd.DataFrame({"total_ns": [3, 4]}, index=pd.Index(["a", "b"], name="name"))
    theirs.to_parquet(tmp_path / "theirs.parquet")
    assert table.schema.pandas_metadata["index_columns"] == ["name"]
    assert table.column_names == pq.read_table(tmp_path / "theirs.parquet").column_names
    back = pd.read_parquet(tmp_path / "all_stats.parquet")
    assert (back.index.name, back.index.tolist()) == ("name", ["a", "b"])
    assert list(back.columns) == ["total_ns"]
    assert table.schema.field("name").metadata[b"meaning"] == b"Kernel name."


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"extra": [1, 2]}, "extra"),
        ({"name": None}, "name"),
        ({"total_ns": None, "extra": [1, 2]}, "extra, total_ns"),
    ],
)
def test_columns_that_are_not_those_declared_are_refused(change, said):
    cells = {name: values for name, values in {**CELLS, **change}.items() if values is not None}
    with pytest.raises(ManifestError, match=f"kernels: columns and manifest differ in {said}"):
        declared_frame(TABLE, cells)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int64", ["a"]),
        ("int64", ["1"]),
        ("int64", [1.5]),
        ("int64", [2**70]),
        ("int64", np.array([2**63], dtype=np.uint64)),
        ("float64", ["x"]),
        ("float64", ["1.5"]),
        ("string", [1]),
        ("string", [1.5]),
        ("string", [b"x"]),
        ("bool", [2]),
        ("bool", ["True"]),
    ],
)
def test_a_value_of_another_type_is_refused(dtype, values):
    with pytest.raises(ManifestError, match=rf"t\.x: not {dtype}"):
        declared_frame(one_column(dtype), {"x": values})


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int64", [1, None]),
        ("float64", [1.0, float("nan")]),
        ("float64", np.array([np.nan])),
        ("string", ["a", None]),
        ("bool", [None, True]),
    ],
)
def test_a_null_is_refused_where_the_manifest_says_never(dtype, values):
    with pytest.raises(ManifestError, match=r"t\.x: null"):
        declared_frame(one_column(dtype, nullable=False), {"x": values})
    assert declared_frame(one_column(dtype), {"x": values})["x"].isna().any()


def test_a_missing_or_undeclared_table_is_refused(tmp_path):
    frame = declared_frame(TABLE, CELLS)
    for tables in ({}, {"kernels": frame, "more": frame}):
        with pytest.raises(ManifestError, match="recipe: tables and manifest differ in"):
            write_tables(tmp_path, manifest(TABLE), tables, csv=False)
    assert list(tmp_path.iterdir()) == []


RISKY = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\uff1d1", "plain", "a=b", "'quoted"]


def test_cells_that_a_spreadsheet_would_run_get_a_quote_in_csv_only(tmp_path):
    cells = {"x": [*RISKY, None]}
    text = one_column("string")
    table = written(tmp_path, text, declared_frame(text, cells), to_csv=True)
    assert table["x"].to_pylist() == cells["x"]
    shown = [row[0] for row in csv_rows(tmp_path / "t.csv")[1:]]
    # Every cell that a formula may start with is quoted; the null is empty.
    assert shown == [*("'" + cell for cell in RISKY[:7]), *RISKY[7:], ""]
