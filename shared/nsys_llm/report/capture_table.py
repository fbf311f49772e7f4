"""The table `capture`: a row for each statement on a profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import pid_of
from nsys_llm.report.run_texts import KINDS
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.outcomes import ProfileOutcome, Statement

_ORDER: Final = {kind: place for place, kind in enumerate(KINDS)}


def capture_rows(profiles: Sequence[ProfileOutcome], ranks: Sequence[Rank]) -> list[dict[str, Any]]:
    """Return the rows of `capture`: inputs in order, their statements by kind, process, time."""
    numbered = {rank.key: rank for rank in ranks}
    rows = []
    for profile in profiles:
        for said in sorted(profile.statements, key=_place):
            process = NULL_INT if said.process is None else said.process
            rank = numbered.get(RankKey(profile.path, process, profile.side))
            labels = (None, profile.label) if rank is None else (rank.number, rank.file)
            rows.append(_row(profile, said, *labels))
    return rows


def _place(said: Statement) -> tuple[Any, ...]:
    return _ORDER[said.kind], said.process or 0, said.start_ns or 0, said.name or ""


def _row(profile: ProfileOutcome, said: Statement, rank: int | None, file: str) -> dict[str, Any]:
    names = {} if profile.facts is None else profile.facts.processes
    kind = KINDS[said.kind]
    return {
        "run": profile.side,
        "file": file,
        "rank": rank,
        "pid": None if said.process is None else pid_of(said.process),
        "process_name": None if said.process is None else names.get(said.process),
        "device_id": said.device_id,
        "kind": said.kind,
        "name": said.name,
        "start_ns": said.start_ns,
        "end_ns": said.end_ns,
        "count_n": said.count_n,
        "of_n": said.of_n,
        "limits": kind.limits,
        "follows": kind.follows,
    }
