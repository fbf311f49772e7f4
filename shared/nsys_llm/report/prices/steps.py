"""How many steps a GPU's span has, and how many of them a replay of the job speaks of."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.records import Tables, records
from nsys_llm.report.walls import Gpu

#: Mark of a step that counts, and of one that the capture cuts.
_COUNTED: Final = ""
_CUT: Final = "cut"
#: Steps that fill less of a span say nothing of it: most was outside of them, or start-up.
_LEAST_SHARE: Final = 0.1


class SpanSteps:
    """Steps of the job, as step_budget has them, or of single GPUs.

    Attributes:
        unit: What a step is; None where there are none.
        replayed_n: Steps that a gain in a replayed step is of: those that count, and those that the
            capture cuts in proportion. A start-up or warm-up is none.
    """

    def __init__(self, tables: Tables) -> None:
        """Read job_steps and rank_edges, or tail_ranks; none of them has to be."""
        self.unit: str | None = None
        self.replayed_n = 0.0
        self._mean_ns: float | None = None
        self._own_ns: dict[Gpu, float] = {}
        if "job_steps" in tables:
            self._read_job(tables)
        elif "tail_ranks" in tables:
            own = [row for row in records(tables["tail_ranks"]) if row["step_ns"]]
            self.unit = own[0]["step_unit"] if own else None
            self._own_ns = {(row["rank"], row["device_id"]): float(row["step_ns"]) for row in own}

    def _read_job(self, tables: Tables) -> None:
        mark, wall_ns = tables["job_steps"]["mark"], tables["job_steps"]["wall_ns"]
        counted_ns = wall_ns[mark == _COUNTED]
        self.unit = next(iter(tables["rank_edges"]["step_unit"].dropna()), None)
        self.replayed_n = float(len(counted_ns))
        if self.unit is not None and counted_ns.sum():
            self._mean_ns = float(counted_ns.mean())
            cut_n = (wall_ns[mark == _CUT] / self._mean_ns).clip(upper=1.0).sum()
            self.replayed_n += float(cut_n)

    def in_span(self, gpu: Gpu, span_ns: int) -> float | None:
        """Return how many mean steps a span is as long as; None where there are none."""
        mean_ns = self._own_ns.get(gpu) if self._mean_ns is None else self._mean_ns
        return span_ns / mean_ns if mean_ns else None

    def are_span(self, span_ns: int) -> bool:
        """Tell whether the replayed steps are enough of a span to speak of it."""
        return self._mean_ns is None or self.replayed_n * self._mean_ns >= _LEAST_SHARE * span_ns
