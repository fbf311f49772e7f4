"""What holds of step_budget on the real traces and on the demo."""

from __future__ import annotations

import pytest
from path_truth import check_identities
from quick_run import quick

from nsys_llm.recipes.step_budget.findings.answer import answer

REAL = ["h100_mfu/before.sqlite", "h100_mfu_ranks/before", "h100_mfu_ranks/after"]


def idle_of_gaps(path, row):
    """Return the idle time that idle_gaps finds on a device between two instants."""
    window = f"--filter-time={row['start_ns']}ns/{row['end_ns']}ns"
    devices = quick("idle_gaps", path, window)["devices"]
    device_rows = devices[
        (devices["rank"] == row["rank"]) & (devices["device_id"] == row["device_id"])
    ]
    return int(device_rows["idle_ns"].iloc[0])


@pytest.mark.nightly
@pytest.mark.parametrize("name", REAL)
def test_everything_adds_up_on_real_traces(traces, name):
    tables = quick("step_budget", traces / name)
    check_identities(tables)
    devices = tables["device_steps"]
    for _, device_rows in devices.groupby(["rank", "device_id"]):
        first, last = device_rows.iloc[0], device_rows.iloc[-1]
        run = {**first.to_dict(), "end_ns": int(last["end_ns"])}
        assert int(device_rows["idle_ns"].sum()) == idle_of_gaps(traces / name, run)


def test_a_step_of_the_job_is_not_taken_for_that_of_a_gpu(traces):
    tables = quick("step_budget", traces / "h100_mfu_ranks" / "before")
    # The overview has the mean over GPUs.
    assert answer(tables).startswith("A layer takes 17.9 ms on average")
    assert "until its last GPU is done, 17.7 ms on a single GPU" in answer(tables)
