"""Manifests: each is valid, faults in one are caught, and a real run writes what it says."""

from __future__ import annotations

import csv
import json
from importlib import resources
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from results import analyse, plain, read_frames

from nsys_llm.core.errors import ManifestError, UsageError
from nsys_llm.core.units import COLUMN_SUFFIXES
from nsys_llm.manifest import manifest as module
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.profile.tables import table_names, table_source
from nsys_llm.testing.trace_builder import TraceBuilder
from nsys_llm.view.tables import Field, headings

TYPES = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
RECIPES = recipe_names()
MANIFESTS = [load_manifest(name) for name in RECIPES]

each_manifest = pytest.mark.parametrize("manifest", MANIFESTS, ids=RECIPES)


def test_there_is_a_manifest_for_each_recipe_and_a_recipe_for_each_manifest():
    recipes = resources.files("nsys_llm.recipes")
    folders = {one.name for one in recipes.iterdir() if one.joinpath("metadata.json").is_file()}
    assert set(RECIPES) == folders
    assert "llm_hotspots" in folders


@each_manifest
def test_option_names_are_unique_and_so_are_their_flags(manifest):
    names = [option.name for option in manifest.options]
    flags = [option.flag for option in manifest.options]
    assert len(set(names)) == len(names)
    assert len(set(flags)) == len(flags)
    # nsys recipe adds its own --mode, and refuses a second one.
    assert "mode" not in names


@each_manifest
def test_options_say_all_that_a_user_needs(manifest):
    for option in manifest.options:
        assert option.help.endswith("."), option.name
        assert bool(option.choices) == (option.type == "choice"), option.name
        assert option.type == "flag" or option.metavar or option.choices, option.name
        assert option.default is None or option.type != "flag", option.name
        assert not option.choices or option.default in option.choices, option.name
        if option.type in ("time", "time_range"):
            assert option.unit == "ns", option.name


@each_manifest
def test_no_two_columns_of_a_table_that_is_shown_have_one_heading(manifest):
    for section in manifest.sections:
        columns = {one.name: one for one in manifest.table(section.table).columns}
        fields = {name: Field(name, one.unit, "", True) for name, one in columns.items()}
        for shown in (section.columns, section.summary):
            told = headings(fields, shown)
            assert len(set(told)) == len(told), (section.table, told)


@each_manifest
def test_it_reads_only_tables_and_columns_that_are_known(manifest):
    for read in manifest.reads:
        assert read.table in table_names()
        extra = [column for columns in read.columns_with.values() for column in columns]
        assert {*read.columns, *extra} <= table_source(read.table).columns.keys()
        assert len(set(read.columns)) == len(read.columns)
    tables = [read.table for read in manifest.reads]
    assert len(set(tables)) == len(tables)


@each_manifest
def test_what_it_reads_for_an_option_names_an_option_that_exists(manifest):
    names = {option.name for option in manifest.options}
    for read in manifest.reads:
        assert set(read.columns_with) | set(read.only_with) <= names
        assert read.lost
        assert not (read.required and (read.only_with or read.only_if)), read.table
    for place, read in enumerate(manifest.reads):
        assert set(read.only_if) <= {before.table for before in manifest.reads[:place]}


@each_manifest
def test_names_and_units_agree_in_both_directions(manifest):
    for table in manifest.writes:
        for column in table.columns:
            if table.index is not None and column.name[0].isupper():
                continue  # NVIDIA's names carry no unit
            for unit, suffix in COLUMN_SUFFIXES.items():
                where = f"{table.file}.{column.name}"
                assert (column.unit == unit) == column.name.endswith(suffix), where
            assert column.unit != "count" or column.dtype == "int64", column.name


@each_manifest
def test_every_table_and_column_has_a_meaning_of_its_own_words(manifest):
    for table in manifest.writes:
        assert table.row
        for column in table.columns:
            assert column.meaning.endswith("."), f"{table.file}.{column.name}"
            assert column.unit != "bytes" or column.dtype == "int64", column.name


@each_manifest
def test_instants_sums_and_extremes_are_integers_and_statistics_are_not(manifest):
    for table in manifest.writes:
        for column in table.columns:
            if column.unit in ("%", "pp", "ratio") or column.name.startswith(
                ("mean_", "std_", "p50_", "p99_")
            ):
                assert column.dtype == "float64", column.name
            elif column.name.startswith(("total_", "exclusive_", "min_", "max_", "window_")):
                assert column.dtype == "int64", column.name


@each_manifest
def test_metadata_is_what_nvidias_loader_needs(manifest):
    assert manifest.name.isidentifier()
    assert manifest.class_name.isidentifier()
    assert manifest.title
    assert manifest.description.endswith(".")
    assert manifest.type in (None, "stats")
    if manifest.type == "stats":
        # What its diff recipe opens.
        assert {"rank_stats", "all_stats"} <= {table.file for table in manifest.writes}


def test_an_unknown_recipe_is_told_with_those_there_are():
    with pytest.raises(UsageError, match=r"unknown recipe 'cuda_sum'; there are: .*llm_hotspots"):
        load_manifest("cuda_sum")


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Return a function that plants a fault in a copy of a manifest and loads it."""
    source = resources.files("nsys_llm.manifests")
    for name in ("common", "llm_hotspots"):
        text = source.joinpath(f"{name}.json").read_text("utf-8")
        (tmp_path / f"{name}.json").write_text(text)
    monkeypatch.setattr(module, "resources", SimpleNamespace(files=lambda _: tmp_path))

    def plant(fault):
        path = tmp_path / "llm_hotspots.json"
        document = json.loads(path.read_text())
        fault(document)
        path.write_text(json.dumps(document))
        return load_manifest("llm_hotspots")

    load_manifest.cache_clear()
    yield plant
    load_manifest.cache_clear()


def test_without_a_fault_the_copy_is_valid(planted):
    assert planted(lambda document: None) in MANIFESTS


def kernels(document):
    return next(table for table in document["writes"] if table["file"] == "kernels")


FAULTS = {
    "name is 'other'": lambda doc: doc.update(name="other"),
    "option 'engine' twice": lambda doc: doc["options"].append(doc["options"][0]),
    "option 'csv' twice": lambda doc: doc["options"].append({**doc["options"][0], "name": "csv"}),
    "table 'kernels' twice": lambda doc: doc["writes"].append(kernels(doc)),
    "table 'files' twice": lambda doc: kernels(doc).update(file="files"),
    "option 'engine' has the unknown type 'word'": lambda doc: doc["options"][0].update(
        type="word"
    ),
    "option 'engine' has the unknown unit 'days'": lambda doc: doc["options"][0].update(
        unit="days"
    ),
    "option 'engine' excludes 'motor', which does not exist": lambda doc: doc["options"][0].update(
        excludes="motor"
    ),
    "kernels.total_ns twice": lambda doc: kernels(doc)["columns"].append(
        next(one for one in kernels(doc)["columns"] if one["name"] == "total_ns")
    ),
    "kernels has no column 'Name' for its index": lambda doc: kernels(doc).update(index="Name"),
    "kernels.name has the unknown dtype 'text'": lambda doc: kernels(doc)["columns"][0].update(
        dtype="text"
    ),
    "kernels.name has the unknown unit 'ms'": lambda doc: kernels(doc)["columns"][0].update(
        unit="ms"
    ),
    "kernels.name must end in _ns": lambda doc: kernels(doc)["columns"][0].update(unit="ns"),
    "kernels.name must end in _pct": lambda doc: kernels(doc)["columns"][0].update(unit="%"),
    "title": lambda doc: doc.pop("title"),
    "meaning": lambda doc: kernels(doc)["columns"][0].pop("meaning"),
    "colour": lambda doc: kernels(doc)["columns"][0].update(colour="red"),
    "helpp": lambda doc: doc["options"][0].update(helpp="typo"),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_planted_fault_is_caught_and_named(planted, said):
    with pytest.raises(ManifestError) as caught:
        planted(FAULTS[said])
    assert said in caught.value.message
    assert "manifests/llm_hotspots.json" in caught.value.message


def test_all_faults_of_a_manifest_are_told_at_once(planted):
    with pytest.raises(ManifestError, match=r"name is 'other'; .*option 'engine' twice"):
        planted(lambda doc: [FAULTS[said](doc) for said in list(FAULTS)[:2]])


def test_the_common_part_is_no_recipe():
    assert "common" not in RECIPES
    with pytest.raises(UsageError, match="unknown recipe 'common'"):
        load_manifest("common")


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """The output of a real run over two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(2):
        builder = TraceBuilder().kernel("nvjet_tst_192x192", start_ns=10, duration_ns=5 + rank)
        builder.memset(start_ns=40, duration_ns=2, size_bytes=8)
        builder.write_sqlite(folder / f"rank{rank}.sqlite")
    return analyse(folder / "out", folder, options=["--csv"])


def test_a_run_writes_the_declared_tables_and_no_others(output):
    declared = {table.file for table in load_manifest("llm_hotspots").writes}
    assert {path.stem for path in output.glob("*.parquet")} == declared
    assert {path.stem for path in output.glob("*.csv")} == declared


@pytest.mark.parametrize(
    "table", load_manifest("llm_hotspots").writes, ids=lambda table: table.file
)
def test_every_written_table_is_as_the_manifest_declares_it(output, table):
    written = pq.read_table(output / f"{table.file}.parquet")
    # An index stands last in the file, as pandas writes it.
    names = [column.name for column in table.columns if column.name != table.index]
    assert written.column_names == names + ([table.index] if table.index else [])
    for column in table.columns:
        field = written.schema.field(column.name)
        assert field.type == TYPES[column.dtype], column.name
        assert field.nullable == column.nullable, column.name
        assert field.metadata[b"unit"].decode() == (column.unit or ""), column.name
        assert field.metadata[b"meaning"].decode() == column.meaning, column.name
        assert column.nullable or written[column.name].null_count == 0, column.name
    frame = read_frames(output)[table.file]
    assert frame.index.name == table.index
    assert plain(frame).keys() == {column.name for column in table.columns}
    with (output / f"{table.file}.csv").open(newline="") as file:
        header = next(csv.reader(file))
    assert header == ([table.index] if table.index else []) + names
