"""Compares tables of step_budget with what a simulated job really waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd
from machine import oracle, simulate, write_profiles
from machine.outcome import Outcome
from machine.program import Program
from quick_run import quick

from nsys_llm.critical_path.path.classes import CLASS_NAMES

#: Classes of communication: which of them time has depends on the matching over ranks.
COMMUNICATION = ("communication", "wait_for_rank", "transfer")
STATES = {
    "compute": "busy_compute_ns",
    "communication": "busy_communication_ns",
    "copy": "busy_copy_ns",
    "overhead": "overhead_ns",
    "idle": "idle_ns",
}
#: Which prerequisite an operation waited for, as far as profiles can tell.
RULE: Final = "usual"
#: The steps of a simulated job, however few.
STEP = ("--step", "re:ProfilerStep")


def budget(
    folder: Path, program: Program, *words: str, **rows: Any
) -> tuple[Outcome, dict[str, pd.DataFrame]]:
    """Simulate a job, and return what happened and the tables of step_budget.

    Args:
        folder: For the profiles.
        program: The job.
        words: Options of the recipe.
        rows: What the profiles hold, see `write_profiles`.
    """
    outcome = simulate(program)
    write_profiles(outcome, folder, **rows)
    step = STEP if outcome.steps_n and "--step" not in words else ()
    return outcome, quick("step_budget", folder, *words, *step)


def classes(row: Mapping[str, Any]) -> dict[str, int]:
    """Return the classes of a row of job_steps or device_steps, without those of 0 ns."""
    times_ns = {name: int(row[f"{name}_ns"]) for name in CLASS_NAMES if f"{name}_ns" in row}
    return {name: ns for name, ns in times_ns.items() if ns}


def together(sums: Mapping[str, int]) -> dict[str, int]:
    """Return classes with those of communication as one."""
    merged = {name: ns for name, ns in sums.items() if name not in COMMUNICATION and ns}
    if any(sums.get(name) for name in COMMUNICATION):
        merged["communication"] = sum(sums.get(name, 0) for name in COMMUNICATION)
    return merged


def matched(tables: Mapping[str, pd.DataFrame]) -> bool:
    """Tell whether all communication is matched with other ranks."""
    edges = tables["rank_edges"]
    return bool((edges["collectives_n"] == edges["matched_n"]).all())


def device_pairs(
    outcome: Outcome, tables: Mapping[str, pd.DataFrame]
) -> Iterator[tuple[dict[str, Any], oracle.Path]]:
    for (rank, device), device_rows in tables["device_steps"].groupby(["rank", "device_id"]):
        truth = oracle.local_paths(outcome, rank, device, RULE)
        assert len(truth) == len(device_rows)
        yield from zip(device_rows.to_dict("records"), truth, strict=True)


def job_pairs(
    outcome: Outcome, tables: Mapping[str, pd.DataFrame]
) -> Iterator[tuple[dict[str, Any], oracle.Path]]:
    truth = oracle.global_paths(outcome, RULE)
    rows = tables["job_steps"].to_dict("records")
    assert len(truth) == len(rows)
    yield from zip(rows, truth, strict=True)


def check_identities(tables: Mapping[str, pd.DataFrame]) -> None:
    devices, job = tables["device_steps"], tables["job_steps"]
    names = [f"{name}_ns" for name in CLASS_NAMES]
    assert (devices[list(STATES.values())].sum(axis=1) == devices["window_ns"]).all()
    assert (devices[names].sum(axis=1) == devices["window_ns"]).all()
    assert (devices["end_ns"] - devices["start_ns"] == devices["window_ns"]).all()
    assert (devices[[*names, *STATES.values(), "window_ns"]] >= 0).all(axis=None)
    assert (devices["certain_ns"] <= devices["window_ns"]).all()
    for _, device_rows in devices.groupby(["rank", "device_id"]):
        ordered = device_rows.sort_values("step")
        assert (ordered["start_ns"].iloc[1:].to_numpy() == ordered["end_ns"].iloc[:-1]).all()
    names = [name for name in names if name in job]
    assert (job[names].sum(axis=1) == job["wall_ns"]).all()
    assert (job[[*names, "wall_ns"]] >= 0).all(axis=None)
    assert (job["certain_ns"] <= job["wall_ns"]).all()
    assert (job["start_ns"].iloc[1:].to_numpy() == job["end_ns"].iloc[:-1]).all()
    for (_, step), path_rows in tables["path"].groupby(["which", "step"]):
        assert path_rows["duration_ns"].sum() == int(job["wall_ns"][job["step"] == step].iloc[0])
        assert (path_rows["end_ns"].iloc[1:].to_numpy() == path_rows["start_ns"].iloc[:-1]).all()


def finds_its_steps(outcome: Outcome, tables: Mapping[str, pd.DataFrame]) -> bool:
    """Tell whether steps are the job's own; without ranges, kernels that repeat may be some."""
    return bool(tables["rank_edges"]["step"].isna().all() == (outcome.steps_n == 0))


def check_truth(outcome: Outcome, tables: Mapping[str, pd.DataFrame]) -> None:
    """Windows, states and classes are those of the simulation, to the ns."""
    if not finds_its_steps(outcome, tables):
        return
    for row, path in device_pairs(outcome, tables):
        ahead_ns = outcome.program.ranks[row["rank"]].capture_ns
        where = row["rank"], row["device_id"], row["step"]
        assert (row["start_ns"] + ahead_ns, row["end_ns"] + ahead_ns) == (path.begin, path.end)
        states = {name: int(row[column]) for name, column in STATES.items()}
        assert states == oracle.rungs(outcome, *where[:1], path.begin, path.end, row["device_id"])
        assert together(classes(row)) == together(path.by_class()), where
    if matched(tables):
        for row, path in job_pairs(outcome, tables):
            assert row["wall_ns"] == path.end - path.begin
            assert classes(row) == path.by_class(), row["step"]
        for row, path in device_pairs(outcome, tables):
            assert classes(row) == path.by_class(), (row["rank"], row["step"])


def wrong_ns(pairs: Iterator[tuple[dict[str, Any], oracle.Path]]) -> tuple[int, int]:
    """Return how much time has another class than the truth, and how much there is."""
    wrong = total = 0
    for row, path in pairs:
        ours, truth = together(classes(row)), together(path.by_class())
        names = {*ours, *truth}
        wrong += sum(abs(ours.get(name, 0) - truth.get(name, 0)) for name in names) // 2
        total += path.end - path.begin
    return wrong, total
