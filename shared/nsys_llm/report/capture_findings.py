"""Remarks made of the statements on a capture; on work that is not recorded, with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import pandas as pd

from nsys_llm.report.findings import Evidence, Finding, claim
from nsys_llm.report.records import Tables, records
from nsys_llm.report.rules import OF_RULE
from nsys_llm.report.run_texts import KINDS, RULES
from nsys_llm.taxonomy.nsys_messages import Message, message_that_says, messages
from nsys_llm.view.text import cleaned, first_quoted, listed, quoted

_MOST_NAMED: Final = 5
_MOST_PROCESSES: Final = 4
_UNITS: Final = {"kernel": "kernel", "graph": "CUDA graph"}
_LAUNCHES: Final = ("kernel", "graph")
_NOT_TRACED: Final = (
    "Start these processes under the profiler: workers by spawn, not by fork (vLLM: "
    "`VLLM_WORKER_MULTIPROC_METHOD=spawn`), and let it follow forks."
)
_NOT_KEPT: Final = (
    "Record a shorter time, and let the buffers be emptied more often. Of this capture, look only "
    "at what lies outside."
)
_GRAPHS: Final = "Do not read idle time or shares of the whole from this capture."


def capture_findings(tables: Tables) -> list[Finding]:
    """Return a remark for each kind of statement in the table `capture`."""
    there = set(tables["capture"]["kind"].tolist())
    own = {"silent_processes": _silent_processes, "lost_work": _lost_work}
    return [
        own[kind](tables) if kind in own else _said(kind, tables)
        for kind in KINDS
        if kind in there and kind in RULES
    ]


def _said(kind: str, tables: Tables) -> Finding:
    rows = _of(tables, kind)
    # Of several earlier runs the command is that of the latest.
    commands = [cleaned(name).replace("`", "'") for name in rows["name"].dropna()]
    by_name = rows.dropna(subset=["name"]).groupby("name", sort=False)["count_n"].sum()
    kinds = ", ".join(
        f"{quoted(name)}" if kind == "unknown_table" else f"{count:,} {name}"
        for name, count in by_name.items()
    )
    command = f"`{commands[-1]}`" if commands else None
    names = first_quoted(dict.fromkeys(rows["file"]), _MOST_NAMED)
    fields = {"names": names, "kinds": kinds, "command": command}
    of = partial(claim, tables, kind=kind)
    evidence = (
        of("count_n", "capture", "count_n"),
        of("of_n", "capture", "of_n"),
        of("files_n", "capture", "file", "distinct"),
        of("processes_n", "capture", "pid", "count"),
        of("rows_n", "capture", "file", "count"),
        of("first_ns", "capture", "start_ns", "min"),
        of("last_ns", "capture", "end_ns", "max"),
    )
    return RULES[kind].finding(fields=fields, evidence=evidence)


def _silent_processes(tables: Tables) -> Finding:
    """Say how many processes launched work of which no row is there."""
    rows = _of(tables, "silent_work")
    of = partial(claim, tables)
    processes = _processes(tables)
    all_n = processes[-1].value if len(processes) > 1 else None
    told, message = _reasons(tables)
    return RULES["silent_processes"].finding(
        case={1: "only", None: "some"}.get(all_n),
        fields={
            "unit": _unit(rows),
            "names": _named(rows),
            "reasons": told,
            "then": "" if all_n == 1 else " Ranks cannot be compared.",
            "advice": _NOT_TRACED if message is None else message.advice,
        },
        record=OF_RULE if message is None else message.record,
        evidence=(
            *processes,
            of("launches_n", "capture", "count_n", kind="silent_work", name=_LAUNCHES),
        ),
    )


def _lost_work(tables: Tables) -> Finding:
    """Say what is lost of processes of which other work is there, and when."""
    rows = _of(tables, "lost_work")
    launches = rows[rows["name"].isin(_LAUNCHES)]
    of, files = partial(claim, tables, kind="lost_work", name=_LAUNCHES), tables.get("files")
    several = files is not None and len(files) > 1
    ranks = set(launches["rank"].dropna())
    rank = int(ranks.pop()) if several and len(ranks) == 1 else None
    if rank is not None:
        of = partial(of, rank=rank)
    told, message = _reasons(tables)
    only_graphs = set(launches["name"]) == {"graph"}
    advice, record = (_GRAPHS, "--cuda-graph-trace=node") if only_graphs else (_NOT_KEPT, OF_RULE)
    evidence = [of("lost_n", "capture", "count_n")]
    lacking: Evidence = of("lost_ranks_n", "capture", "file", "distinct")
    if lacking.value > 1:
        evidence.append(lacking)
    else:
        evidence += [
            of("first_ns", "capture", "start_ns", "min"),
            of("last_ns", "capture", "end_ns", "max"),
        ]
    absent = {"lost_ranks_n", "first_ns", "last_ns"} - {cell.name for cell in evidence}
    return RULES["lost_work"].finding(
        fields={
            **dict.fromkeys(absent),
            "unit": _unit(rows),
            "whose": "" if rank is None else f" of rank {rank}",
            "names": _named(rows),
            "reasons": told,
            "advice": advice if message is None else message.advice,
        },
        record=record if message is None else message.record,
        rank=rank,
        evidence=tuple(evidence),
    )


def silent_files(tables: Tables) -> frozenset[str]:
    """Return the inputs with a process of which no launched work is recorded."""
    return frozenset(_of(tables, "silent_processes")["file"])


def _of(tables: Tables, kind: str) -> pd.DataFrame:
    return tables["capture"][tables["capture"]["kind"] == kind]


def _unit(rows: pd.DataFrame) -> str:
    names = set(rows["name"]) & set(_LAUNCHES)
    return _UNITS[names.pop()] if len(names) == 1 else "launch|launches"


def _processes(tables: Tables) -> tuple[Evidence, ...]:
    """Return how many processes have no row, and of how many, where that is known.

    Of one file all its processes are known; of several, each file without a rank is one process.
    """
    rows, files = _of(tables, "silent_processes"), tables.get("files")
    of = partial(claim, tables, kind="silent_processes")
    silent_n = of("silent_n", "capture", "count_n")
    inputs_n = len(rows) if files is None else len(files)
    if inputs_n > 1 and files is not None and (rows["of_n"] == 1).all():
        return silent_n, claim(tables, "all_n", "files", "File", "count")
    return (silent_n, of("all_n", "capture", "of_n")) if len(rows) == 1 else (silent_n,)


def _named(rows: pd.DataFrame) -> str:
    """Return the processes of some rows by name and number."""
    processes = rows[["file", "process_name", "pid"]].drop_duplicates()
    names = [
        f"{quoted(row['process_name'] or row['file'])} ({int(row['pid'])})"
        for row in records(processes.head(_MOST_PROCESSES))
    ]
    more_n = len(processes) - _MOST_PROCESSES
    return listed([*names, f"{more_n:,} more"] if more_n > 0 else names)


def _reasons(tables: Tables) -> tuple[str, Message | None]:
    """Return what Nsight Systems said of it, and the most telling of its messages."""
    clauses: Iterable[str] = dict.fromkeys(_of(tables, "nsys_message")["name"])
    found = {message_that_says(clause): clause for clause in clauses}
    said = [message for message in messages() if message in found]
    return ", ".join(found[message] for message in said), said[0] if said else None
