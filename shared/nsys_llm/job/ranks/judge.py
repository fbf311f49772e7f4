"""The judge of ranks: one verdict for each GPU, from whatever a recipe knows.

Each GPU is compared with its peers (`peers`) step by step: its compute time, and how late it comes
to matched collectives (`lateness`). Who stands out by more than chance (`chance`) is named, why is
told by what else differs, and the price is what the others wait for it. Limits: noise that stays on
one rank as long as the capture is no noise to this test, and ranks whose noise differs are not
equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.chains import Line
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.collectives.stages import may_be_stages
from nsys_llm.job.ranks.chance import ALPHA, SMALL, Standing
from nsys_llm.job.ranks.groups import Group
from nsys_llm.job.ranks.lateness import Arrivals
from nsys_llm.job.ranks.peers import Gpu, peer_groups
from nsys_llm.job.ranks.verdicts import NO_PEERS, ONE_RANK, RankVerdict, Verdict
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, HOST, IDLE, WAITING, idle_group
from nsys_llm.trace.wall import JobWalls, WallKey

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
#: Verdicts that leave open whether its stage is slow.
_PLAIN: Final = (None, "late")

#: What a verdict gains, and where that is not known, at most.
_PriceNs = tuple[int | None, int | None]
_Mask = npt.NDArray[np.bool_]


def judged(job: JobWalls, collectives: MatchedCollectives | None = None) -> list[RankVerdict]:
    """Return a verdict for each GPU of a job, in the order of ranks and devices.

    Args:
        job: The wall splits, with causes of idle time where the recipe knows them.
        collectives: Those of all ranks; None where nothing is matched.
    """
    numbers = {rank.key: at for at, rank in enumerate(job.ranks)}
    places = sorted((numbers[key], device_id) for key, device_id in job.walls)
    pairs = ((job.ranks[at], job.walls[job.ranks[at].key, device]) for at, device in places)
    gpus = [Gpu(rank, wall, wall.work, job.rules) for rank, wall in pairs if wall.work is not None]
    host_ns = {
        place: sum(ns for cause, ns in classes[IDLE].items() if idle_group(cause) == HOST)
        for place, classes in job.details.items()
        if IDLE in classes
    }
    waiting_ns = {
        place: classes[COMMUNICATION].get(WAITING, 0)
        for place, classes in job.details.items()
        if COMMUNICATION in classes
    }
    arrivals = None if collectives is None else Arrivals(collectives, gpus)
    return _Judge(gpus, arrivals, host_ns, waiting_ns).verdicts()


class _Judge:
    def __init__(
        self,
        gpus: Sequence[Gpu],
        arrivals: Arrivals | None,
        host_ns: Mapping[WallKey, int],
        waiting_ns: Mapping[WallKey, int],
    ) -> None:
        self.gpus, self.arrivals = gpus, arrivals
        self.host_ns, self.waiting_ns = host_ns, waiting_ns
        self.lines = [] if arrivals is None else arrivals.lines()
        self.joined = None if arrivals is None else arrivals.joined()
        # Parts of a run without steps are no work that another GPU should do as fast.
        self.independent = not any(
            gpu.wall.communication_ns or not gpu.work.has_steps for gpu in gpus
        )

    def verdicts(self) -> list[RankVerdict]:
        gpus, arrivals = self.gpus, self.arrivals
        apart: list[int | None] = [None] * len(gpus)
        stage = apart
        if arrivals is not None:
            stages = arrivals.stages
            stage = [stages.stage_of.get(device) for device in arrivals.device_of]
            apart = [None if at < 0 else stages.apart(at) for at in arrivals.device_of]
        groups = peer_groups(gpus, apart, self.joined)
        reason = ONE_RANK if len(gpus) == 1 else NO_PEERS
        result: dict[int, RankVerdict] = {}
        for number, some in enumerate(groups):
            for at in some:
                place = gpus[at].rank.number or 0, gpus[at].wall.device_id
                result[at] = RankVerdict(*place, number, stage[at], len(some), reason=reason)
        several = [some for some in groups if len(some) > 1]
        sent_n = [gpu.communication.get(SEND_RECV, 0) for gpu in gpus]
        if may_be_stages(sent_n) if arrivals is None else arrivals.unplaced:
            several = []
        for some in several:
            group = Group.of(gpus, some, arrivals, ALPHA / len(several))
            for row, at in enumerate(some):
                result[at] = _Peer(self, group, row).verdict(result[at])
        for line in self.lines:
            result |= self._slow_stage(line, result)
        return [result[at] for at in range(len(gpus))]

    def _slow_stage(self, line: Line, rows: Mapping[int, RankVerdict]) -> dict[int, RankVerdict]:
        """Return rows of the stage of a pipeline that computes most, where it is slow."""
        # A slow GPU is no slow stage.
        plain = [[at for at in some if rows[at].verdict in _PLAIN] or some for some in line.stages]
        means = [float(np.mean([self.gpus[at].wall.compute_ns for at in some])) for some in plain]
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
            if rows[at].verdict in _PLAIN
        }


class _Peer:
    """One GPU beside its peers."""

    def __init__(self, job: _Judge, group: Group, row: int) -> None:
        self._job, self._gpus, self._group = job, job.gpus, group
        self._at, self._gpu = group.gpus[row], job.gpus[group.gpus[row]]
        self._loads, self._row = group.loads, row
        alike, self._machine = group.machine(row)
        self._alike = [group.gpus[other] for other in alike]
        self._others = [at for at in group.gpus if at not in self._alike]
        self._compute, self._late = group.compute[row], group.late[row]
        self._compute_ns, self._held_ns = group.compute_ns[row], group.held_ns[row]
        self._more_ns, self._late_ns = group.more_ns[row], group.late_ns[row]

    def verdict(self, row: RankVerdict) -> RankVerdict:
        """Return the row with what is told of it."""
        if not self._group.steps.size:
            return replace(row, reason=self._compute.reason)
        gpu, kernel, kernel_pct, paused, (verdict, test) = self._gpu, None, None, None, self._why()
        if verdict is None and self._loads.under[self._row]:
            verdict, test = "less_work", self._compute
        elif verdict in ("slow_gpu", *_PLAIN) and self._has_more(verdict):
            # Half have nothing to do: who has something is not the exception.
            idle = 2 * self._loads.under.sum() >= self._loads.under.size
            verdict, test = None if idle else "more_work", self._compute
        elif verdict == "slow_gpu":
            verdict, kernel, kernel_pct = self._work()
        # Equal parts of a run are no steps: what falls on a border moves between two.
        if verdict is None and self._gpu.work.has_steps:
            paused = self._paused()
            verdict = None if paused is None else "pauses"
        usual_ns = np.maximum(self._compute_ns - self._more_ns, 1)
        about_ns, bound_ns = None, None
        if verdict == "less_work":
            bound_ns = self._unused_ns()
        elif verdict not in (None, "profiler"):
            about_ns, bound_ns = self._price(verdict, paused)
        less_steps_n, requests_n, peer_requests_n = self._load()
        span_ns, waiting_ns = max(gpu.wall.span_ns, 1), self._job.waiting_ns.get(gpu.key)
        return replace(
            row,
            verdict=verdict,
            kernel=kernel,
            kernel_pct=kernel_pct,
            more_pct=100.0 * float(np.expm1(np.log1p(self._more_ns / usual_ns).mean())),
            late_ns=float(self._late_ns.mean()) if self._group.meet else None,
            chance=math.exp(test.log_chance) if test.blocks_n else None,
            blocks_n=test.blocks_n,
            steps_n=self._group.steps.size,
            late_steps_n=None if paused is None else int(paused.sum()),
            less_steps_n=less_steps_n if verdict == "less_work" else None,
            requests_n=requests_n,
            peer_requests_n=peer_requests_n,
            waiting_pct=None if waiting_ns is None else 100.0 * waiting_ns / span_ns,
            about_ns=about_ns,
            bound_ns=bound_ns,
            reason=None if verdict else test.reason or SMALL,
        )

    def _why(self) -> tuple[Verdict | None, Standing]:
        """Return the verdict by the tests, and the evidence that it rests on.

        Compute that drifts too much to be tested still is why a rank is late.
        """
        if self._machine is not None:
            return "slow_host", self._machine
        compute, late = self._compute, self._late
        explains_ns = _EXPLAINS * float(self._late_ns.sum())
        if late.named and self._more_of(lambda gpu: gpu.wall.profiler_ns) >= explains_ns:
            return "profiler", late
        if compute.named:
            return "slow_gpu", compute
        if not late.named:
            return None, min((compute, late), key=lambda test: test.log_chance)
        if float(self._more_ns.sum()) >= explains_ns:
            return "slow_gpu", late
        # No causes of idle time are known to all recipes.
        idle_ns = self._more_of(lambda gpu: self._job.host_ns.get(gpu.key, 0))
        by_host = bool(self._job.host_ns) and idle_ns >= explains_ns
        return "late_host" if by_host else "late", late

    def _more_of(self, value: Callable[[Gpu], int]) -> float:
        """Return a value of the whole run beyond the median of the others."""
        return value(self._gpu) - float(np.median([value(self._gpus[at]) for at in self._others]))

    def _work(self) -> tuple[Verdict, str | None, float | None]:
        """Return whether it has more to compute or computes slowly, and which kernel has most.

        Last by how much longer than the median of the others that kernel takes, percent; None where
        they do not run it.
        """
        every = [self._gpus[at].kernels for at in (self._at, *self._others)]
        names = sorted(set[str]().union(*every))
        if not names:
            return "slow_gpu", None, None
        sums = np.array([[some.get(name, (0, 0)) for name in names] for some in every])
        (counts, times), (usual_n, usual_ns) = sums[0].T, np.median(sums[1:], axis=0).T
        more_ns, each_ns = times - usual_ns, usual_ns / np.maximum(usual_n, 1)
        by_count_ns = float(((counts - usual_n) * each_ns).sum())
        more_launches = counts.sum() > (1 + _SAME_LAUNCHES) * usual_n.sum()
        telling = times >= _TELLING_SHARE * max(times.sum(), 1)
        ratio = (times / np.maximum(counts, 1)) / np.maximum(each_ns, 1.0)
        # Half of what is more in all: every kernel of a slow GPU has it.
        mean = times.sum() / max(usual_ns.sum(), 1.0)
        longer = telling & (ratio >= (1 + mean) / 2)
        in_few = longer.any() and longer.sum() <= _FEW_KERNELS * telling.sum()
        if in_few or (more_launches and by_count_ns >= _EXPLAINS * more_ns.sum()):
            most = int(more_ns.argmax())
            more_pct = 100.0 * float(more_ns[most] / usual_ns[most]) if usual_ns[most] else None
            return "more_work", names[most], more_pct
        return "slow_gpu", None, None

    def _has_more(self, verdict: Verdict | None) -> bool:
        """Tell whether its batches are larger, by as much as explains what it computes longer."""
        requests = self._loads.requests
        if requests is None or verdict is None:
            return bool(self._loads.over[self._row])
        own, others = requests[:, self._row].mean(axis=1)
        more = self._more_ns.sum() / max((self._compute_ns - self._more_ns).sum(), 1)
        return bool(own / max(others, 1.0) - 1 >= _EXPLAINS * more > 0)

    def _load(self) -> tuple[int, int | None, int | None]:
        """Return in how many steps it had less to do, and the usual requests, its and theirs.

        Of one that usually has nothing, in how many it had nothing.
        """
        less, requests = self._loads.less[self._row], self._loads.requests
        if requests is None:
            return int(less.sum()), None, None
        usual_n = np.median(requests[:, self._row], axis=1)
        less = less if usual_n[0] else requests[0, self._row] == 0
        return int(less.sum()), *(math.ceil(n) for n in usual_n.tolist())

    def _unused_ns(self) -> int | None:
        """Return the time in which a GPU with less to do could do as much as its peers, at most.

        While it waits for them; one that meets none of them, if it had as much to do as they have
        for a request.
        """
        loads, joined, gpu = self._loads, self._job.joined, self._gpu
        scale = gpu.steps_n / self._group.steps.size
        others = [at for at, less in zip(self._group.gpus, loads.under, strict=True) if not less]
        if gpu.wall.communication_ns and (
            joined is None or any(joined[self._at] == joined[at] for at in others)
        ):
            usual_ns = np.median(self._group.compute_ns[~loads.under], axis=0)
            less_ns = float((usual_ns - self._compute_ns).sum()) * scale
            return max(round(min(less_ns, gpu.wall.communication_ns)), 0) or None
        if loads.requests is None:
            return None
        own_n, others_n = loads.requests[:, self._row].sum(axis=1)
        own_ns = float(self._compute_ns.sum())
        used = own_n * (own_ns - float(self._more_ns.sum())) / max(others_n * own_ns, 1.0)
        return max(round((1.0 - used) * gpu.wall.span_ns), 0) or None

    def _paused(self) -> _Mask | None:
        """Return the steps of pauses, where these hold half of its lateness and are worth it.

        A step in which it computed longer, as with hot experts, or the profiler held it up for
        longer, is late for that.
        """
        late_ns, known_ns = self._late_ns, self._more_ns + self._held_ns
        usual_ns = max(float(np.median(np.abs(late_ns))), 1.0)
        steps = (late_ns > _PAUSE_TIMES * usual_ns) & (known_ns < _EXPLAINS * late_ns)
        sums = np.maximum(late_ns, 0)
        if not steps.any() or 2 * sums[steps].sum() < sums.sum():
            return None
        most_ns = max(ns or 0 for ns in self._price("pauses", steps))
        return steps if most_ns >= max(_LEAST_PAUSES * self._gpu.wall.span_ns, 1) else None

    def _price(self, verdict: Verdict | None, chosen: _Mask | None) -> _PriceNs:
        """Return what the others wait for, or at most, where matched collectives do not tell.

        What it could do itself in that time, where none of the job communicates; neither where
        nobody else does.
        """
        lost_ns = self._late_ns if verdict in _BY_LATENESS else self._more_ns
        others_n, arrivals = len(self._others), self._job.arrivals
        is_told = arrivals is not None and arrivals.are_told(self._alike)
        if arrivals is not None and is_told:
            waits_ns = arrivals.waits_ns(self._alike, self._group.steps)
            last = waits_ns.any(axis=0) & (True if chosen is None else chosen)
            most_ns = int(waits_ns[:, last].sum(axis=1).max(initial=0))
            lost_ns = lost_ns[last]
        else:
            others = (gpu for at, gpu in enumerate(self._gpus) if at not in self._alike)
            most_ns = max((gpu.wall.communication_ns for gpu in others), default=0)
            # Without anybody who waits its own steps are shorter.
            most_ns = self._gpu.wall.span_ns if self._job.independent else most_ns
        share = others_n / (others_n + 1) if verdict == "more_work" else 1.0
        # What other steps cost is known of none that a filter or the capture cuts.
        scale = self._gpu.steps_n / self._group.steps.size
        about = min(share * float(lost_ns.sum()), most_ns) * scale
        if verdict not in _BY_LATENESS:
            about *= self._of_pipeline(float(self._more_ns.sum()) * scale)
        gain_ns = max(round(about), 0)
        is_known = is_told or self._job.independent
        return (gain_ns, None) if is_known else (None, gain_ns or None)

    def _of_pipeline(self, more_ns: float) -> float:
        """Return which part of what a stage computes longer its pipeline takes longer."""
        for line in self._job.lines:
            if any(self._at in some for some in line.stages):
                now_ns, then_ns = (
                    [
                        max(self._gpus[at].wall.compute_ns - less * (at == self._at) for at in some)
                        for some in line.stages
                    ]
                    for less in (0.0, more_ns)
                )
                less_ns = sum(now_ns) - sum(then_ns)
                run_ns = line.run_ns(now_ns) - line.run_ns(then_ns)
                return run_ns / less_ns if less_ns > 0 else 1.0
        return 1.0
