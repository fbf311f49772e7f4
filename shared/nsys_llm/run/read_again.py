"""Some ranks of a run, read once more, when the tables say where to look.

Rows of a rank never travel: whoever reads a rank again makes of it what is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.core.rooted import EVERYWHERE, ROOTS
from nsys_llm.manifest.declared import TableRead
from nsys_llm.profile.file_state import Fingerprint, refuse_changed
from nsys_llm.profile.inputs import ProfileInput, open_profile
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.profile.segments import with_segments
from nsys_llm.report.run import Run
from nsys_llm.run.boundary import Boundary
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.selection import select_rank

T = TypeVar("T")


@dataclass(frozen=True)
class RankAgain:
    """A rank that is read again.

    Attributes:
        known: Of its profile, when it was first read.
        wanted: What is wanted of it, for whoever looks.
    """

    key: RankKey
    label: str
    known: Fingerprint
    wanted: Any = None


@dataclass(frozen=True)
class Seen(Generic[T]):
    """What came of reading a rank again.

    Attributes:
        made: What was made of its rows; None where it could not be read.
        reason: Why not, with the rank's name; None where it could.
    """

    key: RankKey
    made: T | None
    reason: str | None = None


def ranks_again(run: Run, wanted: Mapping[RankKey, Any]) -> list[tuple[RankAgain, ...]]:
    """Return what is wanted of ranks of a run, those of each profile together.

    Args:
        wanted: By rank; the profiles are in the order of their first ranks in it.
    """
    labels = {rank.key: rank.file for rank in run.ranks}
    known = {rank.key: profile.fingerprint for profile in run.profiles for rank in profile.ranks}
    by_path: dict[str, list[RankAgain]] = {}
    for key, some in wanted.items():
        if (mark := known[key]) is not None:
            by_path.setdefault(key.path, []).append(RankAgain(key, labels[key], mark, some))
    return [tuple(ranks) for ranks in by_path.values()]


def read_again(
    profiles: Iterable[Sequence[RankAgain]],
    reads: Sequence[TableRead],
    options: Mapping[str, Any],
    look: Callable[[RankAgain, RankView], T],
) -> Iterator[Seen[T]]:
    """Read profiles, one after the other and each once; what goes wrong costs one rank only.

    Args:
        options: Of the run without its filters.
        look: What to make of a rank.
    """
    tables = needed_tables(reads, options)
    for ranks in profiles:
        path, more = ranks[0].key.path, f" and {len(ranks) - 1} more" if len(ranks) > 1 else ""
        trace = None
        with Boundary(ProfileInput(path, f"{ranks[0].label}{more}")) as opening:
            where = {"export_dir": options["export_dir"], "roots": options.get(ROOTS, EVERYWHERE)}
            with open_profile(path, tables, again=True, **where) as opened:
                refuse_changed(opened.path.name, ranks[0].known, opened.fingerprint)
                trace = with_segments(read_trace(opened, reads, options), path, reads, options)
        for rank in ranks:
            made, failure = None, opening.failure
            if trace is not None:
                with Boundary(ProfileInput(path, rank.label)) as looking:
                    rows, _, _ = select_rank(trace, rank.key.global_pid, options)
                    made = look(rank, RankView(rows, rank.key, options))
                failure = looking.failure
            yield Seen(rank.key, made, None if failure is None else failure.reason)
