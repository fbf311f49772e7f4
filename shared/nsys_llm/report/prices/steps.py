"""How many steps a GPU's span has, and how many of them a replay of the job speaks of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nsys_llm.report.records import Tables, records
from nsys_llm.report.walls import Gpu

#: Mark of a step that counts, and of one that the capture cuts.
_COUNTED: Final = ""
_CUT: Final = "cut"
#: Steps that fill less of a span say nothing of it: most was outside of them, or start-up.
_LEAST_SHARE: Final = 0.1


@dataclass(frozen=True)
class SpanSteps:
    """Steps of the job, as step_budget has them, or of single GPUs.

    Attributes:
        unit: What a step is; None where there are none.
        mean_ns: Mean step of the job that counts; None without a job's steps.
        own_ns: Mean step of single GPUs, where a recipe knows those.
        replayed_n: Steps that a gain in a replayed step is of: those that count, and those that the
            capture cuts in proportion. A start-up or warm-up is none.
    """

    unit: str | None = None
    mean_ns: float | None = None
    own_ns: dict[Gpu, float] = field(default_factory=dict)
    replayed_n: float = 0.0

    @classmethod
    def of(cls, tables: Tables) -> SpanSteps:
        """Read job_steps and rank_edges, or tail_ranks; none of them has to be."""
        if "job_steps" not in tables:
            own = records(tables["tail_ranks"]) if "tail_ranks" in tables else []
            own = [row for row in own if row["step_ns"]]
            own_ns = {(row["rank"], row["device_id"]): float(row["step_ns"]) for row in own}
            return cls(own[0]["step_unit"] if own else None, own_ns=own_ns)
        mark, wall_ns = tables["job_steps"]["mark"], tables["job_steps"]["wall_ns"]
        counted_ns = wall_ns[mark == _COUNTED]
        unit = next(iter(tables["rank_edges"]["step_unit"].dropna()), None)
        if unit is None or not counted_ns.sum():
            return cls(unit, replayed_n=float(len(counted_ns)))
        mean_ns = float(counted_ns.mean())
        cut_n = (wall_ns[mark == _CUT] / mean_ns).clip(upper=1.0).sum()
        return cls(unit, mean_ns, replayed_n=len(counted_ns) + float(cut_n))

    def in_span(self, gpu: Gpu, span_ns: int) -> float | None:
        """Return how many mean steps a span is as long as; None where there are none."""
        mean_ns = self.own_ns.get(gpu) if self.mean_ns is None else self.mean_ns
        return span_ns / mean_ns if mean_ns else None

    def are_span(self, span_ns: int) -> bool:
        """Tell whether the replayed steps are enough of a span to speak of it."""
        return self.mean_ns is None or self.replayed_n * self.mean_ns >= _LEAST_SHARE * span_ns
