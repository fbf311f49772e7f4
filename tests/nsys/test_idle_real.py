"""idle_gaps under a real `nsys recipe`: its modes and kinds of input, against the plain command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from results import only_tables, read_frames, rows, run

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

RECIPE = "idle_gaps"
STEMS = ["vector_add_profile_serial", "vector_add_profile_streamed"]

#: What NVIDIA's gpu_gaps tells of the two reports: gaps, and their length.
GAPS = [(409, 30_017_239), (536, 2_869_188)]


@pytest.fixture(scope="module")
def inputs(nsys, traces, tmp_path_factory) -> dict[str, Path]:
    """The same two reports as reports, SQLite and parquet; and two ranks of one host."""
    folder = tmp_path_factory.mktemp("inputs")
    kinds = {"sqlite": "{}.sqlite", "parquetdir": "{}_pqtdir"}
    for name in ("reports", *kinds):
        (folder / name).mkdir()
    for stem in STEMS:
        report = folder / "reports" / f"{stem}.nsys-rep"
        shutil.copyfile(traces / "a100_vector_add" / report.name, report)
        for kind, name in kinds.items():
            target = folder / kind / name.format(stem)
            words = ["--type", kind, "--lazy", "false", "-o", target, report]
            assert run([nsys, "export", *words], folder).returncode == 0
    return {
        **{name: folder / name for name in ("reports", *kinds)},
        "rank_set": traces / "h100_mfu_ranks" / "before",
    }


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """One output folder of the plain command for the two reports and for the two ranks."""
    folder = tmp_path_factory.mktemp("alone")
    for kind in ("sqlite", "rank_set"):
        only_tables(folder / kind, inputs[kind], recipe=RECIPE)
    return folder


def test_the_gaps_are_those_of_nvidia_s_recipe(alone):
    names = "gaps_n idle_ns overhead_ns"
    devices = rows(read_frames(alone / "sqlite")["devices"], names)
    assert [(gaps_n, idle + overhead) for gaps_n, idle, overhead in devices] == GAPS
