"""Ranks of several groups: each has its own steps and peers, and the screen says whose is what."""

from __future__ import annotations

import pytest
from quick_run import quick, quick_run
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_overview.findings.screen import _group_lines
from nsys_llm.report.building import finished
from nsys_llm.report.first_screen import first_screen_lines
from nsys_llm.report.group_words import in_group

US, MS = 1_000, 1_000_000
READ, WRITTEN = "2(512)_generation_0(0)", "0(0)_generation_8(8)"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def write_server(folder, names, batch, work_us, *, slow=None, steps=30, meets=True, gpu=0):
    """Write engines: a step is a GEMM of some length and an all-reduce that all leave at once."""
    for nth, name in enumerate(names):
        trace = TraceBuilder().process(pid=100 + nth, name="serve", gpu_ids=(gpu + nth,))
        trace.environment(RANK=str(nth))
        for step in range(steps):
            # Steps differ, so that who leaves together is known.
            at_ns, all_ns = MS + step * 2 * work_us * US, (work_us * 5 // 4 + step % 7) * US
            own_ns = work_us * (6 if name == slow else 5) * US // 5
            trace.nvtx(f"execute_context_{batch}", at_ns, at_ns + 3 * US)
            ends_ns = at_ns + 5 * US + own_ns
            trace.kernel("gemm", start_ns=at_ns + 5 * US, end_ns=ends_ns, launch=(at_ns, at_ns + 1))
            if meets:
                launch = at_ns + US, at_ns + US + 1
                trace.kernel(
                    REDUCE, start_ns=ends_ns, end_ns=at_ns + all_ns + 9 * US, launch=launch
                )
        path = folder / f"{name}.sqlite"
        path.parent.mkdir(exist_ok=True)
        trace.write_sqlite(path)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two servers whose ranks are both called 0 and 1; a rank of the one that writes is slow."""
    folder = tmp_path_factory.mktemp("servers")
    write_server(folder, ("read/rank0", "read/rank1"), READ, 2000, steps=12, gpu=2)
    write_server(
        folder, ("write/rank0", "write/rank1"), WRITTEN, 1000, slow="write/rank1", steps=60
    )
    return folder


@pytest.fixture(scope="module")
def overview(servers):
    return finished(quick_run("llm_overview", servers))


@pytest.mark.slow
def test_each_group_has_its_own_steps_on_the_screen(overview):
    lines = first_screen_lines(overview.report, overview.report.screen)
    assert "4 GPUs in 2 groups; write: 60 steps, mean 1.99 ms a step" in lines[0]
    [read] = [line for line in lines if line.startswith("  read: 2 GPUs, ")]
    assert read.endswith(", 12 steps, mean 3.88 ms a step")
    assert [line for line in lines if "write: rank 3's GPU is slow" in line]
    assert "mean GPU of write" in lines[1]


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ("All-reduce on the compute stream", "`a`: all-reduce on the compute stream"),
        ("Rank 3's GPU is slow", "`a`: rank 3's GPU is slow"),
        ("FlashAttention-2 on Hopper", "`a`: FlashAttention-2 on Hopper"),
        ("GEMMs without tensor cores", "`a`: GEMMs without tensor cores"),
        ("A step waits", "`a`: A step waits"),
    ],
)
def test_a_title_behind_the_name_of_its_group_keeps_names(title, told):
    assert in_group("a", title) == told


@pytest.mark.parametrize("groups_n", [2, 3, 4, 9])
def test_three_groups_have_a_line_and_others_are_counted(groups_n):
    none = dict.fromkeys(("longer_n", "longer_step_ns", "step_unit", "steps_n", "gpu"))
    groups = {(n,): [{**none, "span_ns": 5 * MS, "rank": n}] for n in range(groups_n)}
    lines = _group_lines({}, groups, {n: f"g{n}" for n in range(groups_n)})
    assert lines[:3] == [f"`g{n}`: 1 GPU, 5 ms" for n in range(min(groups_n, 3))]
    more = f"and {groups_n - 3} more group{'s' * (groups_n > 4)}: `ranks` lists them"
    assert lines[3:] == [more] * (groups_n > 3)


@pytest.mark.slow
def test_ranks_are_compared_within_their_group(overview):
    verdicts = overview.tables["rank_verdicts"]
    assert verdicts["peers_n"].tolist() == [2, 2, 2, 2]
    assert verdicts["verdict"].notna().tolist() == [False, False, False, True]
    [remark] = [made for made in overview.report.findings if made.rule == "groups"]
    assert remark.title == "The 4 ranks are 2 groups that have no collective in common"


@pytest.mark.slow
def test_what_a_rank_of_a_group_waits_is_no_transfer(overview):
    """Rank 2 waits for rank 3 in all-reduces that another group has fewer of."""
    findings = overview.tables["all_findings"].set_index("rule")
    assert findings.loc["exposed_communication", "rank"] == 3


def test_a_recipe_that_matches_nothing_tells_readers_from_writers(servers):
    files = quick("nvtx_phase_attribution", servers)["files"]
    assert files["group"].tolist() == [1, 1, 0, 0]
    assert files["group_name"].tolist() == ["read", "read", "write", "write"]


@pytest.mark.parametrize("meets", [False, True])
def test_data_parallel_engines_with_unlike_work_are_one_group(tmp_path, meets):
    write_server(tmp_path, ("rank0", "rank1", "rank2"), WRITTEN, 1000, meets=meets, slow="rank2")
    write_server(tmp_path, ("dp/idle",), "dummy", 500, meets=False, gpu=3)
    files = quick("comm_stats", tmp_path)["files"]
    assert files["group"].tolist() == [0, 0, 0]
    assert files["group_name"].isna().all()
