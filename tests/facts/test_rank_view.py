"""What several recipes need of a rank is made once, and is the same however often it is asked."""

from __future__ import annotations

from collections import Counter

import pytest
from machine.profile_writer import write_profiles
from machine.random_programs import random_program
from machine.simulation import simulate

from nsys_llm.facts import rank_view
from nsys_llm.facts.rank_view import RankView
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import resolved_options
from nsys_llm.profile.inputs import open_profile
from nsys_llm.profile.reader import read_trace
from nsys_llm.reduced.job_facts import facts_of
from nsys_llm.run.worker import needed_facts
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.selection import gpu_processes, select_rank

#: What a view makes; of the gaps and the operations of a device, once each device.
MADE = (
    *("find_steps", "profiler_spans", "held_calls", "unrecorded_of", "op_names", "map_lanes"),
    *("wall_layers", "sum_gaps"),
)


def views(seed, tmp_path, **given):
    """Return a fresh view of each rank of a random job, as an overview has it."""
    manifest = load_manifest("llm_overview")
    options = resolved_options(manifest, {"input": ["x"], **given})
    for path in write_profiles(simulate(random_program(seed)), tmp_path / str(seed)):
        with open_profile(str(path), ()) as report:
            trace = read_trace(report, manifest.reads, options)
        for pid in gpu_processes(trace):
            rows, _, _ = select_rank(trace, pid, options)
            yield RankView(rows, RankKey(str(path), pid), options)


@pytest.mark.parametrize("seed", range(4))
def test_an_overview_makes_everything_once_a_rank(seed, tmp_path, monkeypatch):
    calls: Counter[str] = Counter()

    def counted(name, make):
        def called(*some, **more):
            calls[name] += 1
            return make(*some, **more)

        return called

    for name in MADE:
        monkeypatch.setattr(rank_view, name, counted(name, getattr(rank_view, name)))
    for owner in ("HostTimeline", "DeviceOps"):
        made = getattr(rank_view, owner)
        monkeypatch.setattr(made, "of", counted(owner, made.of))
    for view in views(seed, tmp_path):
        calls.clear()
        facts_of(view, needed_facts(load_manifest("llm_overview"), view.options))
        devices_n = len(view.trace.device_ids)
        most = dict.fromkeys(calls, 1) | {"sum_gaps": devices_n, "DeviceOps": devices_n}
        assert {name: n for name, n in calls.items() if n > most[name]} == {}
        assert {*MADE, "HostTimeline", "DeviceOps"} - {"wall_layers"} <= calls.keys()


def test_what_is_as_long_as_the_rank_is_forgotten_when_the_recipes_are_done(tmp_path):
    for view in views(1, tmp_path):
        facts_of(view, needed_facts(load_manifest("llm_overview"), view.options))
        assert {"device_ops", "op_names"}.isdisjoint(vars(view))


def test_what_is_forgotten_is_made_again_as_it_was(tmp_path):
    for view in views(2, tmp_path):
        first = view.device_ops
        view.release("device_ops", "op_names")
        for before, after in zip(first, view.device_ops, strict=True):
            assert before.start_ns.tolist() == after.start_ns.tolist()
            assert before.name.tolist() == after.name.tolist()
