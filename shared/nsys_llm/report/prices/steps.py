"""How many steps a GPU's span has, and how many of them a replay of the job speaks of."""

from __future__ import annotations

from dataclasses import dataclass

from nsys_llm.report.records import Tables, grouped, records
from nsys_llm.report.walls import Gpu, Walls

#: Mark of a step that counts, and of one that the capture cuts.
_COUNTED, _CUT = "", "cut"
#: Steps that fill less of a span say nothing of it: most was outside of them, or start-up.
_LEAST_SHARE = 0.1


@dataclass(frozen=True)
class SpanSteps:
    """Steps of the job, as step_budget has them, or of single GPUs.

    Attributes:
        unit: What a step is; None where there are none.
        counted_n: Steps of the job that count; 0 without a job's steps.
        counted_ns: Their time.
        own_ns: Mean step of single GPUs, where a recipe knows those.
        cut_ns: Time of GPUs in steps that the capture cuts, of each no more than a mean one.
    """

    unit: str | None
    counted_n: int
    counted_ns: int
    own_ns: dict[Gpu, float]
    cut_ns: dict[Gpu, int]

    @classmethod
    def of(cls, tables: Tables, walls: Walls) -> SpanSteps:
        """Read job_steps, rank_edges and device_steps, or tail_ranks; none of them has to be."""
        if "job_steps" not in tables:
            own = records(tables["tail_ranks"]) if "tail_ranks" in tables else []
            own = [row for row in own if row["step_ns"]]
            unit = own[0]["step_unit"] if own else None
            own_ns = {(row["rank"], row["device_id"]): float(row["step_ns"]) for row in own}
            return cls(unit, 0, 0, own_ns, {})
        steps = tables["job_steps"]
        counted_ns = steps.loc[steps["mark"] == _COUNTED, "wall_ns"]
        units = tables["rank_edges"]["step_unit"].dropna()
        counted_n, whole_ns = len(counted_ns), int(counted_ns.sum())
        most_ns = whole_ns // counted_n if counted_n else 0
        unit = str(units.iloc[0]) if len(units) else None
        return cls(unit, counted_n, whole_ns, {}, _cut_ns(tables, walls, most_ns))

    def in_span(self, gpu: Gpu, span_ns: int) -> float | None:
        """Return how many mean steps a span is as long as; None where there are none."""
        if self.unit is None:
            return None
        mean_ns = self.own_ns.get(gpu)
        if self.counted_n and self.counted_ns:
            mean_ns = self.counted_ns / self.counted_n
        return span_ns / mean_ns if mean_ns else None

    def replayed(self, gpu: Gpu, span_ns: int) -> float:
        """Return how many steps of a GPU's span a gain in a replayed step is of.

        Those that count, and those that the capture cuts in proportion: where steps fill the span,
        a gain is the same share of it as of a step. A start-up or warm-up is none.
        """
        if self.unit is None or not self.counted_ns:
            return float(self.counted_n)
        mean_ns = self.counted_ns / self.counted_n
        # The steps of the job overlap those of a GPU that the capture cuts.
        fitting_n = max(span_ns / mean_ns, float(self.counted_n))
        return min(self.counted_n + self.cut_ns.get(gpu, 0) / mean_ns, fitting_n)

    def are_span(self, gpu: Gpu, span_ns: int) -> bool:
        """Tell whether the replayed steps are enough of a span to speak of it."""
        if self.unit is None or not self.counted_ns:
            return True
        mean_ns = self.counted_ns / self.counted_n
        return self.replayed(gpu, span_ns) * mean_ns >= _LEAST_SHARE * span_ns


def _cut_ns(tables: Tables, walls: Walls, most_ns: int) -> dict[Gpu, int]:
    steps, wall, edges = tables["device_steps"], tables["wall"], tables["rank_edges"]
    begun = set(edges.loc[edges["begins_in_step"].astype(bool), "rank"])
    columns = ("rank", "device_id", "span_start_ns", "span_end_ns")
    edges_of = zip(*(wall[name].tolist() for name in columns), strict=True)
    spans = {(rank, device): (first, last) for rank, device, first, last in edges_of}
    sums: dict[Gpu, int] = {}
    for (rank, device), rows in grouped(records(steps), "rank", "device_id").items():
        first_ns, last_ns = spans[rank, device]
        edges_ns = [(row["start_ns"], row["end_ns"]) for row in rows if row["mark"] == _CUT]
        if rank in begun:
            edges_ns.append((first_ns, rows[0]["start_ns"]))
        times = (min(end, last_ns) - max(start, first_ns) for start, end in edges_ns)
        sums[rank, device] = sum(max(min(time_ns, most_ns), 0) for time_ns in times)
    return sums
