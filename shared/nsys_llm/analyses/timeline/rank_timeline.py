"""The timeline of one rank: its lines and counters in the windows that there is room for."""

from __future__ import annotations

from collections.abc import Sequence

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.timeline.recorded import (
    Named,
    Recorded,
    memory_counters,
    named_track,
    reaching_in,
    recorded_counters,
    recorded_tracks,
)
from nsys_llm.analyses.timeline.room import Window, windows_with_room
from nsys_llm.analyses.timeline.states import idle_tracks, step_track, wall_tracks
from nsys_llm.trace.timeline import RankTimeline, Track


def rank_timeline(
    view: RankView,
    wanted: Sequence[tuple[int | None, int | None]],
    most_events: int,
    others: Sequence[Track] = (),
    named: Sequence[Named] = (),
) -> RankTimeline:
    """Return the timeline of a rank in some windows.

    Args:
        view: The rank with all of its rows, unfiltered.
        wanted: Windows in the profile's clock; None is the begin or the end of what was recorded.
        most_events: How many events there may be; lines of findings and paths are not counted.
        others: Lines of what is known of the rank only beside others, of the whole run.
        named: Operations to show on lines of their own, too.
    """
    trace = view.trace
    rows = Recorded.of(trace, view.op_names)
    at_ns, weight = rows.starts(waits=bool(others), memory=bool(len(trace.tables["memory_events"])))
    last_ns = max(int(at_ns.max(initial=0)), trace.last_end_ns)
    first_ns = int(at_ns.min()) if at_ns.size else last_ns
    windows: list[Window] = [
        (
            first_ns if start_ns is None else start_ns,
            last_ns + 1 if end_ns is None else end_ns,
        )
        for start_ns, end_ns in wanted
    ]
    windows = [window for window in windows if window[0] < window[1]]
    room = windows_with_room(windows, at_ns, weight, most_events)
    if not len(room.windows_ns):
        return RankTimeline((), (), room.left_out_n, (first_ns, last_ns))
    tracks = [
        *(named_track(rows, some, room.windows_ns) for some in named),
        *step_track(view.steps, room.windows_ns),
        *wall_tracks(view, room.windows_ns),
        *idle_tracks(view, room.windows_ns),
        *(track.take(reaching_in(track, room.windows_ns)) for track in others),
        *recorded_tracks(rows, room.windows_ns),
    ]
    return RankTimeline(
        tuple(track for track in tracks if len(track)),
        (
            *recorded_counters(rows, room.windows_ns),
            *memory_counters(trace, room.windows_ns),
        ),
        room.left_out_n,
        (first_ns, last_ns),
    )
