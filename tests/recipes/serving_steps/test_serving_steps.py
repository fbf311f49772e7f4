"""Planted servers: what serving_steps says is what was planted, and what brute force says."""

from __future__ import annotations

import pytest
from effort import nightly_but, seeds
from quick_run import quick
from serving_plants import FIELDS, TOLD, Run, Server

GRAPHS = (1, 2, 4, 8, 16)
#: One of each kind of server.
KINDS = {
    **{engine: Server(engine, graphs=GRAPHS) for engine in TOLD},
    "empty": Server("vllm", empty_ns=3_000_000, arrivals=0.04, output=(5, 20)),
    "blocking": Server("trtllm_tokens", ahead=False, before_ns=60_000),
    "eager": Server("vllm", graphs=GRAPHS, launch_ns=60_000, arrivals=0.3),
    "drafts": Server("sglang_sums", width=4, output=(40, 120)),
    "vllm drafts": Server("vllm_sums", width=3, output=(40, 120)),
    "large": Server("vllm_sums", slots_n=24, arrivals=0.4, graphs=(8, 16, 24)),
}


def tables_of(run: Run, folder, *options):
    return quick("serving_steps", run.write(folder / "rank0.sqlite"), *options)


def nulls(frame, name):
    return [None if value != value or value is None else int(value)
            for value in frame[name].astype(object).where(frame[name].notna(), None)]  # fmt: skip


class Truth:
    """Times of a run's steps by their definitions, step by step."""

    def __init__(self, run: Run) -> None:
        self.run, self.steps = run, run.steps
        ends, latest = [], run.steps[0].begin_ns
        for step in run.steps:
            latest = max([latest, *(end for _, end in step.ops)])
            ends.append(latest)
        self.end = ends
        self.before = [run.steps[0].begin_ns, *ends[:-1]]
        pairs = zip(run.steps, self.before, strict=True)
        self.begin = [max(before, step.begin_ns) for step, before in pairs]

    def busy(self, place: int) -> int:
        low, high = self.begin[place], self.end[place]
        cut = [(max(start, low), min(end, high)) for start, end in self.run.ops]
        return sum(end - start for start, end in cut if end > start)  # one stream: no overlap

    def intervals(self):
        """Return each interval between tokens: time, requests, whether a prompt is read."""
        every, last = [], None
        for place, step in enumerate(self.steps):
            if not step.fields["gen_reqs"]:
                continue
            if last is not None:
                inside = self.steps[last + 1 : place]
                read = sum(item.fields["ctx_reqs"] for item in inside)
                waited = step.fields["gen_reqs"] - read
                mixed = bool(read or step.fields["ctx_reqs"])
                every.append((self.end[place] - self.end[last], waited, step, mixed))
            last = place
        return every


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_but(KINDS, ["vllm", "sglang_sums", "trtllm", "drafts"]))
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_steps_are_as_planted(seed, kind, tmp_path):
    run = KINDS[kind].run(seed)
    tables, truth = tables_of(run, tmp_path), Truth(run)
    frame = tables["batch_steps"]
    drafts = frame[frame["draft"]]
    assert len(drafts) == len(run.every) - len(run.steps)
    frame = frame[~frame["draft"]]
    assert len(frame) == len(run.steps)
    for name in FIELDS:
        assert nulls(frame, name) == [run.told(step)[name] for step in run.steps], name
    assert frame["start_ns"].tolist() == truth.before
    between = [begin - before for begin, before in zip(truth.begin, truth.before, strict=True)]
    assert frame["between_ns"].tolist() == between
    cost = [end - begin for end, begin in zip(truth.end, truth.begin, strict=True)]
    assert frame["cost_ns"].tolist() == cost
    assert frame["busy_ns"].tolist() == [truth.busy(place) for place in range(len(run.steps))]
    assert (frame["window_ns"] == frame["between_ns"] + frame["cost_ns"]).all()
    assert (frame["cost_ns"] == frame["busy_ns"] + frame["idle_ns"]).all()
    sizes = [step.graph or None for step in run.steps]
    if kind != "vllm_new":
        assert nulls(frame, "graph_size") == sizes
    assert frame["graph"].notna().tolist() == [size is not None for size in sizes]
    told = [phase for phase in frame["phase"].tolist() if isinstance(phase, str)]
    assert told == [step.phase for step in run.steps]
    assert sum(frame["no_work_ns"]) == (
        0 if KINDS[kind].engine.startswith(("sglang", "vllm_new"))
        else sum(end - start for start, end in planted_empty(run, truth))
    )  # fmt: skip


def planted_empty(run: Run, truth: Truth):
    """Return when nobody was there, as far as that is longer than 5 gaps and a step."""
    gaps = [begin - before for begin, before in zip(truth.begin, truth.before, strict=True)][1:]
    costs = [end - begin for end, begin in zip(truth.end, truth.begin, strict=True)][1:]
    least = max(5 * sorted(gaps)[(len(gaps) - 1) // 2], sorted(costs)[(len(costs) - 1) // 2])
    for place, step in enumerate(run.steps[1:], 1):
        free = max(truth.before[place], run.steps[place - 1].end_ns)
        arrives = step.fields["ctx_reqs"] and not step.fields["gen_reqs"]
        if arrives and step.begin_ns - free > least:
            yield free, step.begin_ns
