"""What to know before reading the numbers of phases: how ranges were found, and steps."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.records import Tables
from nsys_llm.taxonomy.step_names import is_engine_step, recording_advice
from nsys_llm.view.text import counted, format_ns, format_percent, listed, quoted

#: Ways to a range that infer, or that stand for many runs of one capture.
_INDIRECT: Final = ("start_end", "graph_launch", "graph_capture", "delegated")
_WORDS: Final = {
    "start_end": "by start/end ranges, which hold what any thread of the process launches while "
    "they are open",
    "graph_launch": "to the range around the launch of its CUDA graph: what ranges were open at "
    "the capture is not in it (`--graph-ranges capture` uses them first)",
    "graph_capture": "to the range in which its node of a CUDA graph was captured, however often "
    "the graph ran since",
    "delegated": "to the range of a thread that handed the work over and waited, as PyTorch's "
    "backward pass does; the trace shows the waiting, not the handing over",
}


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    return [
        *_methods(tables),
        *_parts(tables),
        *_open_ranges(tables),
        *_steps(tables),
        *_engine_steps(tables),
    ]


def headline(tables: Tables) -> list[str]:
    """Return how many kernels of graphs the annotations fit; nothing without any."""
    marks = tables["marks"]
    rows = marks[marks["annotation_key"].notna()]
    if rows.empty:
        return []
    share = 100.0 * int(rows["annotated_n"].sum()) / int(rows["graph_kernels_n"].sum())
    keys = listed(sorted(set(rows["annotation_key"])))
    return [f"annotations: of {format_percent(share)} of the kernels in CUDA graphs, by {keys}"]


def _parts(tables: Tables) -> list[str]:
    """Say how many kernels of graphs the annotations fit, and what is inferred of their parts."""
    parts = tables["model_parts"]
    lines = [f"{line[0].upper()}{line[1:]}." for line in headline(tables)]
    inferred = parts[parts["found_by"] == "eager_run"]
    if len(inferred):
        share = format_percent(100.0 * inferred["total_ns"].sum() / parts["total_ns"].sum())
        lines.append(
            f"The part of the model of {share} of the kernel time is inferred: the same kernels "
            "have it where they run outside of CUDA graphs."
        )
    return lines


def _methods(tables: Tables) -> list[str]:
    rows = tables["attribution"]
    total_ns = int(rows["gpu_ns"].sum())
    lines = []
    for part in _INDIRECT:
        own_ns = int(rows.loc[rows["part"] == part, "gpu_ns"].sum())
        if own_ns:
            share = format_percent(100.0 * own_ns / total_ns)
            lines.append(
                f"{share} of the GPU time ({format_ns(own_ns)}) was attributed {_WORDS[part]}."
            )
    return lines


def _open_ranges(tables: Tables) -> list[str]:
    without_end_n = int(tables["marks"]["without_end_n"].sum())
    if not without_end_n:
        return []
    few = without_end_n == 1
    return [
        f"{counted(without_end_n, 'range')} {'was' if few else 'were'} never closed, and "
        f"{'lasts' if few else 'last'} to the end of the GPU work here."
    ]


def _steps(tables: Tables) -> list[str]:
    marks, ranks = tables["marks"], tables["rank_steps"]
    if not (marks["push_pop_n"] + marks["start_end_n"]).sum():
        return []
    without_n = int(ranks["name"].isna().sum())
    if without_n == len(ranks):
        return [
            "There are no steps: no range is an engine's, or repeats and holds at least half of "
            f"the launched GPU time. Name one with {quoted('--step RANGE')}."
        ]
    names = sorted(set(ranks["name"].dropna()))
    lines = []
    if without_n:
        lines.append(f"{counted(without_n, 'rank')} of {len(ranks)} have no steps.")
    if len(names) > 1:
        shown = ", ".join(quoted(name) for name in names[:3])
        lines.append(
            f"Ranks have different steps ({shown}), and statistics are of the kind that most have; "
            "name one with `--step`."
        )
    # A filter may leave steps without any GPU time, of which nothing has a share.
    shares = ranks["gpu_pct"].dropna()
    if len(shares) and (low := shares.min()) < 90.0:
        lines.append(
            f"Steps ({quoted(names[0])}) hold {format_percent(low)} of the GPU time on the rank "
            "with least; the rest was launched outside of them."
        )
    return lines


def _engine_steps(tables: Tables) -> list[str]:
    """Say what records the engine's own step ranges, where there are none."""
    engines = set(tables["phase_categories"]["engine"])
    advice = recording_advice(next(iter(engines))) if len(engines) == 1 else None
    if advice is None:
        return []
    (engine,), (title, record) = engines, advice
    names = [*tables["rank_steps"]["name"].dropna(), *tables["ranges"]["name"]]
    if any(is_engine_step(name, engine) for name in names):
        return []
    return [
        f"The kernels are those of {title}, and its own ranges around steps are absent. {record}."
    ]
