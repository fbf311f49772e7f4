"""What Nsight Systems itself said of a capture, where that explains what is missing.

Profiles that hold everything have alarming messages too: processes without CUDA, drivers that are
newer than the profiler. So a message counts only as the reason of work that is known to be missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Trace, pid_of
from nsys_llm.taxonomy.nsys_messages import known_message
from nsys_llm.trace.statements import Statement

#: Warnings and errors.
_GRAVE = (2, 3)


def diagnostics(trace: Trace, lacking: Collection[int]) -> Iterator[Statement]:
    """Count the messages of a profile: those that are a reason, and those that are not known.

    Args:
        lacking: The processes of which work is missing, as globalPid.
    """
    table = trace.tables.get("diagnostics")
    if table is None or not len(table):
        return
    known: Counter[tuple[int | None, str]] = Counter()
    unknown_n = 0
    columns = (table[name].tolist() for name in ("text", "severity", "global_pid"))
    for text, severity, process in zip(*columns, strict=True):
        found = known_message(text or "")
        if found is None:
            unknown_n += severity in _GRAVE
        elif found[0].advice and lacking:
            # The profiler's own have a process of their own, with number 0.
            whole = process == NULL_INT or process < 0 or not pid_of(process)
            if whole or process in lacking:
                known[None if whole else process, found[1]] += 1
    for (process, says), count in sorted(known.items(), key=str):
        yield Statement("nsys_message", count, process=process, name=says)
    if unknown_n:
        yield Statement("unknown_messages", unknown_n)
