"""The judge of ranks: one verdict for each GPU, from whatever a recipe knows.

Each GPU is compared with its peers (`peers`) step by step: its compute time, and how late it comes
to matched collectives (`lateness`). Who stands out by more than chance (`chance`) is named, why is
told by what else differs, and the price is what the others wait for it. Limits: noise that stays on
one rank as long as the capture is no noise to this test, and ranks whose noise differs are not
equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.collectives.matched import MatchedCollectives
from nsys_llm.analyses.collectives.stages import may_be_stages
from nsys_llm.analyses.ranks.chance import ALPHA, SMALL, FloatArray, Standing
from nsys_llm.analyses.ranks.groups import Group
from nsys_llm.analyses.ranks.lateness import Arrivals
from nsys_llm.analyses.ranks.peers import Gpu, peer_groups
from nsys_llm.analyses.ranks.schedule import Line
from nsys_llm.analyses.ranks.verdicts import NO_PEERS, ONE_RANK, RankVerdict, Verdict
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import HOST, IDLE, idle_group
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.wall import DeviceWall, JobWalls, WallKey

#: A stage is slow from so much compute beyond the mean stage.
_SLOW_STAGE: Final = 0.05
#: Part of a lateness that explains it.
_EXPLAINS: Final = 0.5
#: As many launches as the peers', within this share.
_SAME_LAUNCHES: Final = 0.01
#: Kernels with less than this share of the time are left out; more work is in this part of the
#: others at most.
_TELLING_SHARE: Final = 0.005
_FEW_KERNELS: Final = 0.5
#: A step is paused if later than so many times the median step's lateness; pauses are told from
#: this share of the span.
_PAUSE_TIMES: Final = 5
_LEAST_PAUSES: Final = 0.03

#: Verdicts of which the lateness is the price, not the compute time.
_BY_LATENESS: Final = ("late_host", "late", "pauses")

_Mask = npt.NDArray[np.bool_]


def judged(job: JobWalls, collectives: MatchedCollectives | None = None) -> list[RankVerdict]:
    """Return a verdict for each GPU of a job, in the order of ranks and devices.

    Args:
        job: The wall splits, with causes of idle time where the recipe knows them.
        collectives: Those of all ranks; None where nothing is matched.
    """
    walls: dict[RankKey, list[DeviceWall]] = {}
    for key, device_id in sorted(job.walls, key=lambda place: place[1]):
        walls.setdefault(key, []).append(job.walls[key, device_id])
    gpus = [
        Gpu(rank, wall, wall.work, job.rules)
        for rank in job.ranks
        for wall in walls.get(rank.key, ())
        if wall.work is not None
    ]
    host_ns = {
        place: sum(ns for cause, ns in classes[IDLE].items() if idle_group(cause) == HOST)
        for place, classes in job.details.items()
        if IDLE in classes
    }
    arrivals = None if collectives is None else Arrivals(collectives, gpus)
    return _Judge(gpus, arrivals, host_ns).verdicts()


class _Judge:
    def __init__(
        self, gpus: Sequence[Gpu], arrivals: Arrivals | None, host_ns: Mapping[WallKey, int]
    ) -> None:
        self.gpus, self.arrivals, self.host_ns = gpus, arrivals, host_ns
        none: list[int | None] = [None] * len(gpus)
        self._stage = none if self.arrivals is None else self.arrivals.stage_of()
        joined = None if self.arrivals is None else self.arrivals.joined()
        apart = none if self.arrivals is None else self.arrivals.apart()
        self._groups = peer_groups(gpus, apart, joined)
        self.lines = [] if self.arrivals is None else self.arrivals.lines()

    def verdicts(self) -> list[RankVerdict]:
        several = [some for some in self._groups if len(some) > 1]
        result = {
            at: self._row(at, number, len(some))
            for number, some in enumerate(self._groups)
            for at in some
        }
        transfers_n = [gpu.communication.get(SEND_RECV, 0) for gpu in self.gpus]
        if self.arrivals is not None or not may_be_stages(transfers_n):
            for some in several:
                group = Group.of(self.gpus, some, self.arrivals, ALPHA / len(several))
                for row, at in enumerate(some):
                    result[at] = _Peer(self, group, row).verdict(result[at])
        for line in self.lines:
            result |= self._slow_stage(line, result)
        return [result[at] for at in range(len(self.gpus))]

    def _row(self, at: int, group: int, peers_n: int) -> RankVerdict:
        """Return the row of a GPU that is compared with nobody."""
        number, device_id = self.gpus[at].rank.number or 0, self.gpus[at].wall.device_id
        reason = ONE_RANK if len(self.gpus) == 1 else NO_PEERS
        return RankVerdict(number, device_id, group, self._stage[at], peers_n, reason=reason)

    def _slow_stage(self, line: Line, rows: Mapping[int, RankVerdict]) -> dict[int, RankVerdict]:
        """Return rows of the stage of a pipeline that computes most, where it is slow."""
        # A slow GPU is no slow stage.
        plain = [
            [at for at in some if rows[at].verdict in (None, "late")] or some
            for some in line.stages
        ]
        means = [float(np.mean([self.gpus[at].compute_ns for at in some])) for some in plain]
        usual_ns = sum(means) / len(means)
        worst = int(np.argmax(means))
        if means[worst] < (1 + _SLOW_STAGE) * usual_ns:
            return {}
        about_ns = line.run_ns(means) - line.run_ns([usual_ns] * len(means))
        return {
            at: replace(
                rows[at],
                verdict="slow_stage",
                more_pct=100.0 * (means[worst] / max(usual_ns, 1.0) - 1),
                # Without a schedule nobody knows how much of that other stages hide.
                about_ns=None if line.messages_n is None else round(about_ns),
                reason=None,
            )
            for at in line.stages[worst]
            if rows[at].verdict in (None, "late")
        }


class _Peer:
    """One GPU beside its peers."""

    def __init__(self, job: _Judge, group: Group, row: int) -> None:
        self._job, self._gpus, self._arrivals = job, job.gpus, job.arrivals
        self._group, self._row_at = group, row
        self._gpu = job.gpus[group.gpus[row]]
        self._alike = group.alike(row)
        self._others = [other for other in range(len(group.gpus)) if other not in self._alike]

    def verdict(self, row: RankVerdict) -> RankVerdict:
        """Return the row with what is told of it."""
        group = self._group
        if not group.steps.size:
            return replace(row, reason=group.compute[self._row_at].reason)
        more_ns, late_ns = group.more_ns[self._row_at], group.late_ns[self._row_at]
        kernel, verdict, test = None, *self._why(more_ns, late_ns)
        if verdict == "slow_gpu":
            verdict, kernel = self._work()
        usual_ns = np.maximum(group.compute_ns[self._row_at] - more_ns, 1)
        about_ns, paused = None, None
        # Equal parts of a run are no steps: what falls on a border moves between two.
        if verdict is None and self._gpu.work.has_steps:
            paused = self._paused(late_ns, more_ns + group.held_ns[self._row_at])
            verdict = "pauses" if paused is not None else None
        if verdict not in (None, "profiler"):
            lost_ns = late_ns if verdict in _BY_LATENESS else more_ns
            about_ns = self._price(lost_ns, verdict, paused)
        return replace(
            row,
            verdict=verdict,
            kernel=kernel,
            more_pct=100.0 * float(np.expm1(np.log1p(more_ns / usual_ns).mean())),
            late_ns=None if group.late is None else float(late_ns.mean()),
            chance=test.chance if test.blocks_n else None,
            blocks_n=test.blocks_n,
            steps_n=group.steps.size,
            late_steps_n=None if paused is None else int(paused.sum()),
            about_ns=about_ns,
            reason=None if verdict else test.reason or SMALL,
        )

    def _why(self, more_ns: FloatArray, late_ns: FloatArray) -> tuple[Verdict | None, Standing]:
        """Return the verdict by the tests, and the evidence that it rests on.

        Compute that drifts too much to be tested still is why a rank is late.
        """
        group, row = self._group, self._row_at
        slow_host = group.slow_hosts.get(group.hosts[row] or "")
        if slow_host is not None:
            return "slow_host", slow_host
        compute, late = group.compute[row], None if group.late is None else group.late[row]
        if late is not None and late.named:
            late_sum = float(late_ns.sum())
            if self._more_of(lambda gpu: gpu.wall.profiler_ns) >= _EXPLAINS * late_sum:
                return "profiler", late
            if compute.named:
                return "slow_gpu", compute
            if float(more_ns.sum()) >= _EXPLAINS * late_sum:
                return "slow_gpu", late
            # No causes of idle time are known to all recipes.
            idle_ns = self._more_of(lambda gpu: self._job.host_ns.get(gpu.key, 0))
            by_host = bool(self._job.host_ns) and idle_ns >= _EXPLAINS * late_sum
            return "late_host" if by_host else "late", late
        if compute.named:
            return "slow_gpu", compute
        both = [compute] if late is None else [compute, late]
        return None, min(both, key=lambda test: test.chance)

    def _more_of(self, value: Any) -> float:
        """Return a value of the whole run beyond the median of the others."""
        values = [value(self._gpus[at]) for at in self._group.gpus]
        return float(values[self._row_at] - np.median([values[at] for at in self._others]))

    def _work(self) -> tuple[Verdict, str | None]:
        """Return whether it has more to compute or computes slowly, and which kernel has most."""
        own = self._gpu.kernels
        others = [self._gpus[self._group.gpus[at]].kernels for at in self._others]
        names = sorted(set(own).union(*others))
        if not names:
            return "slow_gpu", None
        nothing = np.zeros(2, dtype=np.int64)
        counts, times = np.array([own.get(name, nothing) for name in names]).T
        usual = np.median([[some.get(name, nothing) for name in names] for some in others], axis=0)
        more_ns = times - usual[:, 1]
        most = names[int(more_ns.argmax())]
        launches_n, usual_n = counts.sum(), usual[:, 0].sum()
        each_ns = usual[:, 1] / np.maximum(usual[:, 0], 1)
        by_count_ns = float(((counts - usual[:, 0]) * each_ns).sum())
        if launches_n > (1 + _SAME_LAUNCHES) * usual_n and by_count_ns >= _EXPLAINS * more_ns.sum():
            return "more_work", most
        telling = times >= _TELLING_SHARE * max(times.sum(), 1)
        ratio = (times / np.maximum(counts, 1)) / np.maximum(each_ns, 1.0)
        # Half of what is more in all: every kernel of a slow GPU has it.
        mean = times.sum() / max(usual[:, 1].sum(), 1.0)
        longer = telling & (ratio >= (1 + mean) / 2)
        if longer.any() and longer.sum() <= _FEW_KERNELS * telling.sum():
            return "more_work", most
        return "slow_gpu", None

    def _paused(self, late_ns: FloatArray, known_ns: FloatArray) -> _Mask | None:
        """Return the steps of pauses, where these hold half of its lateness and are worth it.

        A step in which it computed longer, as with hot experts, or the profiler held it up for
        longer, is late for that: known_ns.
        """
        usual_ns = max(float(np.median(np.abs(late_ns))), 1.0)
        steps = (late_ns > _PAUSE_TIMES * usual_ns) & (known_ns < _EXPLAINS * late_ns)
        sums = np.maximum(late_ns, 0)
        if not steps.any() or 2 * sums[steps].sum() < sums.sum():
            return None
        about_ns = self._price(late_ns, "pauses", steps)
        enough = about_ns is not None and about_ns >= _LEAST_PAUSES * self._gpu.wall.span_ns
        return steps if enough else None

    def _price(self, more_ns: FloatArray, verdict: Verdict, chosen: _Mask | None) -> int | None:
        """Return what the others wait for; None where nobody does."""
        peers_n = len(self._others) + 1
        share = (peers_n - 1) / peers_n if verdict == "more_work" else 1.0
        lost_ns = more_ns
        if self._arrivals is None:
            gpus = [gpu for gpu in self._gpus if gpu is not self._gpu]
            most_ns = max((gpu.wall.communication_ns for gpu in gpus), default=0)
        else:
            culprits = [self._group.gpus[row] for row in self._alike]
            last, waits = self._arrivals.waiting(culprits, self._group.steps)
            last = last if chosen is None else last & chosen
            most_ns = int(waits[:, last].sum(axis=1).max(initial=0))
            lost_ns = more_ns[last]
        about = min(share * float(lost_ns.sum()), most_ns)
        # What other steps cost is known of none that a filter or the capture cuts.
        about *= self._gpu.steps_n / max(self._group.steps.size, 1)
        if verdict not in _BY_LATENESS:
            about *= self._of_pipeline(float(more_ns.sum()))
        return round(about) if about > 0 else None

    def _of_pipeline(self, more_ns: float) -> float:
        """Return which part of what a stage computes longer its pipeline takes longer."""
        at = self._group.gpus[self._row_at]
        line = next((line for line in self._job.lines if at in line.owners), None)
        if line is None:
            return 1.0
        more_ns *= self._gpu.steps_n / self._group.steps.size
        now_ns, then_ns = (
            [
                max(self._gpus[item].compute_ns - less * (item == at) for item in some)
                for some in line.stages
            ]
            for less in (0.0, more_ns)
        )
        less_ns = sum(now_ns) - sum(then_ns)
        return (line.run_ns(now_ns) - line.run_ns(then_ns)) / less_ns if less_ns > 0 else 1.0
