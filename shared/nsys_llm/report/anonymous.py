"""A run without what identifies its owner: hosts, processes and files become numbered labels.

What a program chose to name stays, since a report is about it: kernels, NVTX ranges, CUDA calls; so
do numbers of ranks, processes and threads, times, and the names of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.profile.inputs import natural_key
from nsys_llm.report.run import Run
from nsys_llm.trace.identity import on_machines, relabelled
from nsys_llm.trace.outcomes import ProfileOutcome

_UNREADABLE: Final = "cannot be read; the command says why"
_UNREAD: Final = "inputs were left out; the command says which"


def anonymous(run: Run) -> Run:
    """Return the run with labels like host-1, process-1 and profile-1, the same in every table."""
    facts = [profile.facts for profile in run.profiles if profile.facts is not None]
    hosts = _labels("host", (fact.host for fact in facts if fact.host is not None))
    processes = _labels("process", (name for fact in facts for name in fact.processes.values()))
    every = (*run.profiles, *run.earlier)
    paths = sorted((profile.path for profile in every), key=natural_key)
    files = _labels("profile", paths)
    shown = {id(fact): _without_names(fact, hosts, processes) for fact in facts}
    ranks = tuple(replace(rank, facts=shown.get(id(rank.facts))) for rank in run.ranks)
    return replace(
        run,
        profiles=tuple(
            replace(
                profile,
                label=files[profile.path],
                facts=shown.get(id(profile.facts)),
                reason=profile.reason and f"{files[profile.path]}: {_UNREADABLE}.",
                fault=None,
            )
            for profile in run.profiles
        ),
        ranks=tuple(on_machines(relabelled(ranks, files.__getitem__))),
        earlier=tuple(_earlier(profile, files[profile.path]) for profile in run.earlier),
        left_out=(f"{len(run.left_out)} {_UNREAD}",) if run.left_out else (),
    )


def _earlier(profile: ProfileOutcome, label: str) -> ProfileOutcome:
    said = tuple(replace(statement, name=None) for statement in profile.statements)
    return replace(profile, label=label, facts=None, statements=said)


def _labels(kind: str, names: Iterable[str]) -> dict[str, str]:
    """Return the label that stands for each name in all of a run."""
    distinct = list(dict.fromkeys(names))
    width = len(str(len(distinct)))
    return {name: f"{kind}-{number:0{width}d}" for number, name in enumerate(distinct, start=1)}


def _without_names(
    facts: CaptureFacts, hosts: Mapping[str, str], processes: Mapping[str, str]
) -> CaptureFacts:
    return replace(
        facts,
        host=None if facts.host is None else hosts[facts.host],
        processes={pid: processes[name] for pid, name in facts.processes.items()},
        secret_variables=(),
        environments_n=0,
    )
