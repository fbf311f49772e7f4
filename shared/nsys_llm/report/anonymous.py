"""A run without what identifies its owner: hosts, processes and files become numbered labels.

What a program chose to name stays, since a report is about it: kernels, NVTX ranges, CUDA calls; so
do numbers of ranks, processes and threads, times, and the names of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.profile.inputs import natural_key
from nsys_llm.report.run import Run
from nsys_llm.trace.identity import on_machines, relabelled
from nsys_llm.trace.outcomes import ProfileOutcome

_UNREADABLE: Final = "cannot be read; the command says why"
_UNREAD: Final = "inputs were left out; the command says which"


class _Labels:
    """What identifies somebody, and the label that stands for it in all of a run."""

    def __init__(self, kind: str, names: Iterable[str]) -> None:
        distinct = list(dict.fromkeys(names))
        width = len(str(len(distinct)))
        self._labels = {
            name: f"{kind}-{number:0{width}d}" for number, name in enumerate(distinct, start=1)
        }

    def of(self, name: str) -> str:
        return self._labels[name]


def anonymous(run: Run) -> Run:
    """Return the run with labels like host-1, process-1 and profile-1, the same in every table."""
    facts = [profile.facts for profile in run.profiles if profile.facts is not None]
    hosts = _Labels("host", (fact.host for fact in facts if fact.host is not None))
    processes = _Labels("process", (name for fact in facts for name in fact.processes.values()))
    every = (*run.profiles, *run.earlier)
    paths = sorted((profile.path for profile in every), key=natural_key)
    files = _Labels("profile", paths)
    shown = {id(fact): _without_names(fact, hosts, processes) for fact in facts}
    ranks = tuple(replace(rank, facts=shown.get(id(rank.facts))) for rank in run.ranks)
    return replace(
        run,
        profiles=tuple(
            _renamed(profile, files.of(profile.path), shown.get(id(profile.facts)))
            for profile in run.profiles
        ),
        ranks=tuple(on_machines(relabelled(ranks, files.of))),
        earlier=tuple(_earlier(profile, files.of(profile.path)) for profile in run.earlier),
        left_out=(f"{len(run.left_out)} {_UNREAD}",) if run.left_out else (),
    )


def _earlier(profile: ProfileOutcome, label: str) -> ProfileOutcome:
    said = tuple(replace(statement, name=None) for statement in profile.statements)
    return replace(profile, label=label, facts=None, statements=said)


def _without_names(facts: CaptureFacts, hosts: _Labels, processes: _Labels) -> CaptureFacts:
    return replace(
        facts,
        host=None if facts.host is None else hosts.of(facts.host),
        processes={pid: processes.of(name) for pid, name in facts.processes.items()},
        secret_variables=(),
        environments_n=0,
    )


def _renamed(profile: ProfileOutcome, label: str, facts: CaptureFacts | None) -> ProfileOutcome:
    reason = None if profile.reason is None else f"{label}: {_UNREADABLE}."
    return replace(profile, label=label, facts=facts, reason=reason, fault=None)
