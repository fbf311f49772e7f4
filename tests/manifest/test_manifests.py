"""Manifests: each is valid, faults in one are caught, and a real run writes what it says."""

from __future__ import annotations

from importlib import resources

import jsonschema
import pyarrow as pa
import pytest
from manifest_faults import CHARTS, SCHEMA, document_of, faults
from results import analyse, read_report
from trace_builder import TraceBuilder

from nsys_llm.core.errors import UsageError
from nsys_llm.manifest import gates, options
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.profile.tables import table_source
from nsys_llm.report import outputs
from nsys_llm.view.figures import KINDS
from nsys_llm.view.tables import Field, headings

SUFFIXES = {"ns": "_ns", "bytes": "_bytes", "%": "_pct", "pp": "_pp", "ppm": "_ppm"}
TYPES = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
RECIPES = recipe_names()
MANIFESTS = [load_manifest(name) for name in RECIPES]

each_manifest = pytest.mark.parametrize("manifest", MANIFESTS, ids=RECIPES)


def test_there_is_a_manifest_for_each_recipe_and_a_recipe_for_each_manifest():
    recipes = resources.files("nsys_llm.recipes")
    folders = {
        folder.name for folder in recipes.iterdir() if folder.joinpath("metadata.json").is_file()
    }
    assert set(RECIPES) == folders
    assert "llm_hotspots" in folders


@each_manifest
def test_no_option_takes_the_place_of_one_that_nsys_recipe_adds(manifest):
    # It refuses a second --mode.
    assert "mode" not in [option.name for option in manifest.options]


@each_manifest
def test_options_say_all_that_a_user_needs(manifest):
    for option in manifest.options:
        assert bool(option.choices) == (option.type == "choice"), option.name
        assert option.type == "flag" or option.metavar or option.choices, option.name
        assert option.default is None or option.type != "flag", option.name
        assert not option.choices or option.default in option.choices, option.name
        if option.type in ("time", "time_range"):
            assert option.unit == "ns", option.name


@each_manifest
def test_no_two_columns_of_a_table_that_is_shown_have_one_heading(manifest):
    for section in manifest.sections:
        columns = {declared.name: declared for declared in manifest.table(section.table).columns}
        fields = {name: Field(name, declared.unit, "", True) for name, declared in columns.items()}
        for shown in (section.columns, section.summary):
            titles = headings(fields, shown)
            assert len(set(titles)) == len(titles), (section.table, titles)


@each_manifest
def test_it_reads_only_tables_and_columns_that_are_known(manifest):
    for read in manifest.reads:
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
        tables = {name.partition(".")[0] for name in read.only_if}
        assert tables <= {before.table for before in manifest.reads[:place]}


@each_manifest
def test_names_and_units_agree_in_both_directions(manifest):
    for table in manifest.writes:
        for column in table.columns:
            if table.index is not None and column.name[0].isupper():
                continue  # NVIDIA's names carry no unit
            for unit, suffix in SUFFIXES.items():
                where = f"{table.file}.{column.name}"
                named = column.name.endswith(suffix) or column.name == unit == "bytes"
                assert (column.unit == unit) == named, where
            assert column.unit != "count" or column.dtype == "int64", column.name


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
def test_stats_recipes_write_what_nvidias_diff_recipe_opens(manifest):
    if manifest.type == "stats":
        assert {"rank_stats", "all_stats"} <= {table.file for table in manifest.writes}


def test_an_unknown_recipe_is_told_with_those_there_are():
    with pytest.raises(UsageError, match=r"unknown recipe 'cuda_sum'; there are: .*llm_hotspots"):
        load_manifest("cuda_sum")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_manifest_has_no_fault(recipe):
    assert faults(recipe, document_of(recipe), document_of("common")) == []


def test_the_schema_is_one_and_knows_what_the_product_knows():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    parts = SCHEMA["$defs"]
    assert set(parts["option_type"]["enum"]) == {*options._PARSERS, "flag"}
    assert set(parts["dtype"]["enum"]) == outputs._PANDAS_TYPES.keys() == TYPES.keys()
    assert set(parts["metric"]["properties"]["unit"]["enum"]) == gates._UNITS.keys()
    assert set(parts["chart"]["properties"]["kind"]["enum"]) == KINDS.keys() == CHARTS.keys()


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
    listed = read_report(output)["tables"]
    assert set(listed) == declared
    filled = {name for name, table in listed.items() if table["rows"]}
    assert {path.stem for path in output.glob("*.parquet")} == filled
    assert {path.stem for path in output.glob("*.csv")} == filled


@pytest.mark.parametrize("recipe", recipe_names())
def test_what_is_read_first_is_short(recipe):
    lead = [section for section in load_manifest(recipe).sections if section.lead]
    assert 1 <= len([section for section in lead if not section.optional]) <= 4
    assert sum(len(section.charts) for section in lead if not section.optional) <= 8
