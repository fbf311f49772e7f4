"""trace_diff on real traces: the survey's numbers, and modes."""

from __future__ import annotations

import shutil
import sqlite3

import pandas as pd
import pytest
from finding_numbers import checked
from results import analyse, read_frames, read_report, run, tables_of

from nsys_llm.run.cli import main

pytestmark = pytest.mark.traces


@pytest.fixture(scope="module")
def mfu(traces, tmp_path_factory):
    folder = traces / "h100_mfu"
    out = tmp_path_factory.mktemp("mfu") / "out"
    return analyse(
        out, folder / "before.sqlite", folder / "after.sqlite", options=[], recipe="trace_diff"
    )


@pytest.fixture(scope="module")
def tables(mfu):
    return read_frames(mfu)


def test_the_verdict_is_in_wall_clock_time_a_layer(tables, mfu):
    verdict = tables["verdict"].iloc[0]
    # Layers of the input follow each other so closely that they tell as much as one.
    assert (verdict["word"], verdict["word_reason"]) == ("PROBABLY SLOWER", "order")
    assert round(verdict["longer_probability"], 2) == 0.86
    assert verdict["unit"] == "layer"
    assert ms([verdict["baseline_ns"], verdict["input_ns"]]) == [17.745, 19.98]
    assert (verdict["baseline_steps_n"], verdict["input_steps_n"]) == (16, 14)
    assert round(verdict["change_pct"], 1) == 12.6
    assert round(verdict["program_change_pct"], 1) == 11.4
    lines = read_report(mfu)["report"]["answer"].splitlines()
    assert lines[:2] == [
        "PROBABLY SLOWER: 17.74 -> 19.98 ms a layer (+12.6 %; +11.4 % without the profiler's "
        "flushes); each of 14 layers takes longer than 11 of the 16 before. Layers in a row are "
        "alike, so these prove little: record 3 runs of the baseline (--baselines), or about 69 "
        "layers.",
        "idle +1.59 | communication +0.38 (waiting) | profiler +0.22 | compute +0.05",
    ]
    assert lines[2].startswith(
        "likely cause: the host: launch and copy calls take 1.4 to 1.6 times as long (medians: "
        "`cudaLaunchKernel` 5.65 -> 8.41 us, "
    )
    # Of the ranges some are as fast as before: never all.
    assert "19 of 33 NVTX ranges 1.1 to 1.6 times (" in lines[2]


WALL_MS = {"idle": 1.586, "communication": 0.376, "profiler": 0.219, "compute": 0.054, "copies": 0}


def test_the_change_of_a_layer_adds_up_class_by_class(tables):
    wall = tables["wall_change"]
    whole = wall[wall["detail"].isna()]
    mean = whole[whole["rank"].isna()].set_index("wall_class")["change_ns"]
    assert dict(zip(mean.index, ms(mean), strict=True)) == WALL_MS
    assert ms([mean.sum()]) == [2.235]
    # The mean of both GPUs, and details that add up to their class on each.
    each = whole[whole["rank"].notna()].groupby("wall_class")["change_ns"].mean()
    assert each.to_dict() == pytest.approx(mean.to_dict())
    parts = wall[wall["detail"].notna()]
    keys = ["rank", "device_id", "wall_class"]
    sums = parts.groupby(keys, dropna=False)["change_ns"].sum()
    classes = whole.set_index(keys)["change_ns"]
    for key, ns in sums.items():
        assert ns == pytest.approx(classes[key], abs=1e-3)


@pytest.mark.nightly
def test_kernels_are_those_launched_in_full_layers_by_sql(tables, traces):
    kernels = tables["kernels"].set_index("name")
    assert set(kernels["basis"]) == {"a full layer, mean of ranks"}
    sums = []
    for side in ("before", "after"):
        file = f"file:{traces / 'h100_mfu' / f'{side}.sqlite'}?mode=ro"
        with sqlite3.connect(file, uri=True) as database:
            rows = database.execute(
                "WITH marks AS (SELECT globalTid / 16777216 AS pid, MIN(start) AS first, "
                "MAX(start) AS last, COUNT(*) - 1 AS layers FROM NVTX_EVENTS LEFT JOIN StringIds "
                "ON id = textId WHERE COALESCE(text, value) LIKE 'FSDP::pre_forward (blocks.%' "
                'GROUP BY pid) SELECT s.value, m.pid, SUM(k."end" - k.start) * 1.0 / m.layers '
                "FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON "
                "r.correlationId = k.correlationId AND r.globalTid / 16777216 = k.globalPid / "
                "16777216 JOIN marks m ON m.pid = k.globalPid / 16777216 JOIN StringIds s ON "
                "s.id = k.demangledName WHERE r.start >= m.first AND r.start < m.last "
                "GROUP BY s.value, m.pid, m.layers"
            ).fetchall()
        by_name = pd.DataFrame(rows, columns=["name", "pid", "ns"]).groupby("name")["ns"]
        sums.append(by_name.sum() / 2)
    for side, expected in zip(("baseline", "input"), sums, strict=True):
        seen = kernels[f"{side}_compared_ns"]
        assert seen.sum() == pytest.approx(expected.sum(), rel=1e-9)
        assert seen[expected.index].tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    # What overlaps nothing adds up to the classes of the step.
    wall = tables["wall_change"]
    mean = wall[wall["rank"].isna() & wall["detail"].isna()].set_index("wall_class")["change_ns"]
    talks = kernels[kernels["communication"]]
    assert talks["compared_change_ns"].sum() == pytest.approx(mean["communication"], rel=0.01)


HOST_US = {
    "cudaLaunchKernel": (5.65, 8.41),
    "cudaMemcpyAsync": (6.75, 11.10),
    "cuLaunchKernelEx": (8.04, 11.25),
    "cudaStreamWaitEvent": (2.57, 1.98),
    "aten::view": (2.78, 4.49),
}


def test_the_host_is_slower_in_most_calls_and_faster_in_some(tables, mfu):
    host = tables["host"].set_index("name")
    for name, medians in HOST_US.items():
        p50_us = host.loc[name, ["baseline_p50_ns", "input_p50_ns"]] / 1_000
        assert p50_us.tolist() == pytest.approx(medians, abs=0.006), name
        assert host.loc[name, "verdict"] == ("regress" if medians[1] > medians[0] else "improve")
    report = checked(read_report(mfu)["report"])
    findings = {finding["rule"]: finding for finding in report["findings"]}
    finding = findings["slower_host"]
    # No more than idle time grew on that GPU, however causes moved inside of it.
    wall = tables["wall_change"]
    idle = wall[(wall["wall_class"] == "idle") & wall["detail"].isna() & (wall["rank"] == 0)]
    assert finding["gain_step_ns"] == pytest.approx(idle["change_ns"].item())
    assert finding["severity"] == "high"


@pytest.mark.nightly
def test_the_pair_swapped_wins_as_much(tables, traces, tmp_path):
    folder, out = traces / "h100_mfu", tmp_path / "out"
    analyse(out, folder / "after.sqlite", folder / "before.sqlite", options=[], recipe="trace_diff")
    back = read_frames(out)
    assert back["verdict"]["word"].tolist() == ["PROBABLY FASTER"]
    assert back["verdict"]["change_ns"].tolist() == (-tables["verdict"]["change_ns"]).tolist()
    keys = ["rank", "device_id", "wall_class", "detail"]
    there, again = (frames["wall_change"].set_index(keys)["change_ns"] for frames in (tables, back))
    assert (-again.reindex(there.index)).tolist() == there.tolist()
    for name, key in (("kernels", "name"), ("apis", "api")):
        here, there = tables[name].set_index(key), back[name].set_index(key)
        assert (here["change_ns"] == -there["change_ns"].reindex(here.index)).all()
    findings = checked(read_report(out)["report"])["findings"]
    assert {finding["kind"] for finding in findings} - {"capture"} == {"improvement"}


@pytest.mark.nightly
@pytest.mark.nsys
def test_spans_of_the_same_copies_are_compared_and_say_what_they_gain(
    nsys, traces, tmp_path, capsys
):
    """Serial and streamed: the sum of copies changes by 662,686,641 ns, and less overlap."""
    for name in ("serial", "streamed"):
        stem = f"vector_add_profile_{name}"
        shutil.copyfile(traces / "a100_vector_add" / f"{stem}.nsys-rep", tmp_path / f"{stem}.rep")
        words = ["export", "--type", "sqlite", "-o", tmp_path / f"{stem}.sqlite"]
        assert run([nsys, *words, tmp_path / f"{stem}.rep"], tmp_path).returncode == 0
    paths = (tmp_path / f"vector_add_profile_{name}.sqlite" for name in ("serial", "streamed"))
    words = ["--mode", "none", "--output", tmp_path / "o", "--baseline", next(paths)]
    assert main(["trace_diff", *map(str, [*words, "--input", next(paths)])]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        "FASTER  4.03 -> 2.14 s for the same 60 GB of copies (the kernels differ: 110 ->",
        "410 launches, 1 % of the span): 1.17 s by copies both ways at once, 663 ms by",
        "pinned memory",
        "copies -1.84 | idle -0.03 | compute -0.02",
    ]
    (copies,) = checked(read_report(tmp_path / "o")["report"])["findings"][:1]
    numbers = {"beside_ns": -1_170_587_737, "alone_ns": -662_686_641}
    assert {name: copies["numbers"][name] for name in numbers} == numbers


EFFECTS = ["change_ns", "count_effect_ns", "per_call_effect_ns"]


def ms(values):
    return [round(float(value) / 1e6, 3) for value in values]


def test_the_change_splits_as_the_survey_measured_it(tables):
    kernels = tables["kernels"]
    assert ms(kernels[EFFECTS].sum()) == [-46.365, -57.598, 11.233]
    (sendrecv,) = kernels[kernels["communication"]][EFFECTS].to_numpy()
    assert ms(sendrecv) == [8.340, -1.540, 9.880]
    flash = kernels.set_index("name").filter(like="flash_fwd", axis=0).iloc[0]
    assert (flash["baseline_launches_n"], flash["input_launches_n"]) == (68, 60)
    assert ms(flash[EFFECTS]) == [-31.562, -32.037, 0.476]
    assert flash["baseline_total_ns"] / 68 == pytest.approx(4_004_670, abs=10)
    assert flash["input_total_ns"] / 60 == pytest.approx(4_012_590, abs=10)

    # Configurations have parts of their own.
    assert ms(tables["configs"][EFFECTS].sum()) == [-46.365, -57.515, 11.149]


def test_more_communication_is_waiting_of_pairs_and_of_the_profiler(tables, mfu):
    whole = tables["collectives"].iloc[0]
    columns = ["change_ns", "wait_change_ns", "transfer_change_ns"]
    assert ms(whole[columns]) == [8.340, 9.109, -0.525]
    assert ms(whole[["baseline_wait_ns", "input_wait_ns"]]) == [13.376, 22.485]
    assert (whole["baseline_late_rank"], whole["input_late_rank"]) == (1, 0)
    report = read_report(mfu)["report"]
    (finding,) = (item for item in report["findings"] if item["rule"] == "pair_waiting")
    said = "waiting +1.13 ms on rank 1, 35 % of it for the profiler's own work, in sends and"
    assert said in finding["details"]
    assert "Sums over the runs" not in report["answer"]


@pytest.mark.nightly
def test_one_file_per_rank_gives_the_same_numbers(tables, traces, tmp_path):
    folder = traces / "h100_mfu_ranks"
    apart = tables_of(tmp_path / "out", folder / "before", folder / "after", recipe="trace_diff")
    for name in ("kernels", "configs", "memops"):
        pd.testing.assert_frame_equal(apart[name], tables[name])
    # Two files have two clocks, which are aligned by the ends of collectives.
    here, there = (
        frames["metrics"][~frames["metrics"]["metric"].str.startswith("comm_")]
        for frames in (apart, tables)
    )
    pd.testing.assert_frame_equal(here, there)
