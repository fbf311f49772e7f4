"""Results that somebody damaged or made: read as they were written, or refused in one line."""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import nsys_llm
from nsys_llm.core.errors import NsysLlmError, OutputError
from nsys_llm.report import stored
from nsys_llm.run.cli import main

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=9),
    st.sampled_from(["../..", "/etc", "a`b", "\ud800", [], {}, [None], {"": 1}, 10**400]),
)


@pytest.fixture(scope="module")
def result(shared_runs):
    return shared_runs.run("demo", "llm_overview")[1]


@pytest.fixture
def copied(result, tmp_path):
    return shutil.copytree(result, tmp_path / "copied")


def asked(folder, capsys):
    """Ask all that show has of a result; return the exit codes and what was said."""
    codes = {main(["show", str(folder), *words]) for words in ([], ["--json"], ["1"], ["ranks"])}
    return codes, capsys.readouterr().err


def changed(value, data):
    """Change, leave out or add something at some depth of a record."""
    places = [value]
    while True:
        place = places[-1]
        keys = [*place] if isinstance(place, dict) else [*range(len(place))]
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(place[key], (dict, list)) and place[key] and data.draw(st.booleans())):
            break
        places.append(place[key])
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(ODD)
    return value


@pytest.mark.slow
@given(data=st.data())
@examples(
    20, nightly=1_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_record_of_other_fields_is_shown_or_refused(result, tmp_path_factory, capsys, data):
    folder = tmp_path_factory.mktemp("record")
    record = json.loads((result / "report.json").read_text("utf-8"))
    (folder / "report.json").write_text(json.dumps(changed(record, data)), "utf-8")
    shutil.copy(result / "ranks.parquet", folder)
    shutil.copy(result / "recipes.parquet", folder)
    shutil.copytree(result / "parts", folder / "parts", copy_function=os.link)
    codes, said = asked(folder, capsys)
    assert codes <= {0, 2}, said
    # To import the SDK takes a second.
    from nsys_llm.run.agent_server import AgentTools, ToolError

    with suppress(ToolError):
        AgentTools([folder]).findings(str(folder))
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("span_ns", pa.array(["1", "2", "3", "4"])),
        ("span_ns", pa.array([1.0, 2.0, 3.0, 4.0])),
        ("span_ns", pa.array([1, 2, None, 4])),
        ("span_ns", pa.array([1, 2, 3, 4], pa.uint64())),
        ("step_ns", pa.array([1.0, 2.0, math.nan, 4.0])),
        ("step_ns", pa.array([1.0, 2.0, math.inf, 4.0])),
        ("step_ns", pa.array([[1.0], [2.0], [3.0], [4.0]])),
        ("step_unit", pa.array([b"\xff", b"a", b"b", b"c"], pa.binary())),
        ("step_unit", pa.array([1, 2, 3, 4])),
        ("file", pa.array([None, "a", "b", "c"])),
        ("rank", None),
    ],
)
@pytest.mark.parametrize(("ask", "more"), [(["show"], ["ranks"]), (["trend"], ["."])])
def test_a_column_of_another_type_or_without_its_values_is_damage(
    copied, capsys, monkeypatch, column, values, ask, more
):
    monkeypatch.chdir(copied)
    file = copied / "ranks.parquet"
    table = pq.read_table(file)
    place = table.column_names.index(column)
    table = table.remove_column(place)
    if values is not None:
        table = table.add_column(place, column, values)
    pq.write_table(table, file)
    code, said = main([*ask, str(copied), *more]), capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert f"{file}: missing or damaged" in said


def test_a_column_that_may_be_null_and_that_no_version_knew_are_no_damage(copied):
    file = copied / "ranks.parquet"
    table = pq.read_table(file).drop_columns(["steps_n"])
    pq.write_table(table.append_column("later", pa.array([{"a": 1}] * len(table))), file)
    ranks = nsys_llm.load(copied).tables["ranks"]
    assert ranks["steps_n"].isna().all()
    assert "later" not in ranks


def test_text_that_is_none_is_damage(copied):
    file = copied / "ranks.parquet"
    table = pq.read_table(file)
    raw = pa.array([b"\xff\xfe"] * len(table), pa.binary()).view(pa.string())
    place = table.column_names.index("file")
    pq.write_table(table.set_column(place, "file", raw), file)
    with pytest.raises(OutputError, match="missing or damaged"):
        _ = nsys_llm.load(copied).tables["ranks"]


def test_rows_are_compared_before_any_is_read_and_a_file_is_not_unpacked_to_fill_memory(
    copied, monkeypatch
):
    file, reads = copied / "ranks.parquet", []
    table = pq.read_table(file)
    record = json.loads((copied / "report.json").read_text("utf-8"))
    read = pq.ParquetFile.iter_batches

    def batches(*given, **named):
        for part in read(*given, **named):
            reads.append(part)
            yield part

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", batches)

    def refused(rows, listed_n):
        pq.write_table(rows, file)
        record["tables"]["ranks"]["rows"] = listed_n
        (copied / "report.json").write_text(json.dumps(record), "utf-8")
        with pytest.raises(OutputError, match="missing or damaged"):
            _ = nsys_llm.load(copied).tables["ranks"]

    refused(table, len(table) + 1)
    assert reads == []
    many = table.take(pa.array([0] * 20_000))
    place = table.column_names.index("file")
    many = many.set_column(place, "file", pa.array(["x" * 1_000] * len(many)))
    monkeypatch.setattr(stored, "_MOST_BYTES", 5_000_000)
    refused(many, len(many))
    assert file.stat().st_size < 50_000
    # Of some twenty parts.
    assert 0 < len(reads) < 8


@pytest.mark.parametrize("name", ["/etc", "../..", "..", "rm", "idle_gaps/../../..", ""])
def test_a_recipe_of_a_result_is_a_name_of_one(copied, capsys, name):
    table = pq.read_table(copied / "recipes.parquet")
    names = pa.array([name, *table["recipe"].to_pylist()[1:]])
    pq.write_table(table.set_column(0, "recipe", names), copied / "recipes.parquet")
    codes, said = asked(copied, capsys)
    assert 2 in codes
    assert codes <= {0, 2}
    assert "a part of no recipe" in said


@pytest.mark.parametrize("name", ["ranks.parquet", "report.json", "parts", "parts/idle_gaps"])
def test_a_link_in_a_result_is_not_followed(copied, result, name):
    place = copied / name
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()
    place.symlink_to(result / name)

    def read():
        whole = nsys_llm.load(copied)
        return whole.tables["ranks"], whole.parts["idle_gaps"].tables["gaps"]

    with pytest.raises(NsysLlmError, match="missing or damaged"):
        read()


def test_the_shape_of_what_a_run_writes_is_the_schema_and_numbers_are_finite(result):
    record = json.loads((result / "report.json").read_text("utf-8"))
    stored._require_shape(record, stored.report_schema())
    for value in (math.nan, math.inf, 2**63, -(10**400), 10**400, "1", None, True, -1):
        odd = copy.deepcopy(record)
        odd["tables"]["ranks"]["rows"] = value
        with pytest.raises(ValueError, match=r"."):
            stored._require_shape(odd, stored.report_schema())
