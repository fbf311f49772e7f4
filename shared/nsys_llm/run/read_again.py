"""Some ranks of a run, read once more when the tables say where to look.

This is done in the process that was started: rows of a rank never travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from nsys_llm.core.rooted import EVERYWHERE, ROOTS
from nsys_llm.facts.rank_view import RankView
from nsys_llm.manifest.declared import TableRead
from nsys_llm.profile.file_state import refuse_changed
from nsys_llm.profile.inputs import ProfileInput, open_profile
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.profile.segments import with_segments
from nsys_llm.report.run import Run
from nsys_llm.run.boundary import Boundary
from nsys_llm.trace.filters import unfiltered
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.selection import select_rank

T = TypeVar("T")


def read_again(
    run: Run,
    wanted: Sequence[Rank],
    reads: Sequence[TableRead],
    look: Callable[[Rank, RankView], T],
) -> Iterator[tuple[T | None, str | None]]:
    """Read ranks without filters, each profile once; what goes wrong costs one rank only.

    Args:
        look: What to make of a rank.

    Yields:
        What was made of each rank, those of a profile together; or why it could not be read.
    """
    options = unfiltered(run.options)
    tables = needed_tables(reads, options)
    where = {"export_dir": options["export_dir"], "roots": options.get(ROOTS, EVERYWHERE)}
    known = {
        rank.key: profile.fingerprint
        for profile in run.profiles
        for rank in profile.ranks
        if profile.fingerprint is not None
    }
    by_path: dict[str, list[Rank]] = {}
    for rank in wanted:
        by_path.setdefault(rank.key.path, []).append(rank)
    for path, ranks in by_path.items():
        more = f" and {len(ranks) - 1} more" if len(ranks) > 1 else ""
        trace = None
        with (
            Boundary(ProfileInput(path, f"{ranks[0].file}{more}")) as opening,
            open_profile(path, tables, again=True, **where) as opened,
        ):
            refuse_changed(opened.path.name, known[ranks[0].key], opened.fingerprint)
            trace = with_segments(read_trace(opened, reads, options), path, reads, options)
        for rank in ranks:
            made, failure = None, opening.failure
            if trace is not None:
                with Boundary(ProfileInput(path, rank.file)) as looking:
                    rows, _, _ = select_rank(trace, rank.key.global_pid, options)
                    made = look(rank, RankView(rows, rank.key, options))
                failure = looking.failure
            yield made, None if failure is None else failure.reason
