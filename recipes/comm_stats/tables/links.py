"""What links of GPUs carry in one direction, by the names of the GPUs."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from .job import CommJob

#: More than a link can carry, in percent: switches reduce on the way.
MOST_PCT: Final = 105.0
#: NVLink of one direction, GB/s, by the names of GPUs: NVIDIA's data sheets. Cards on PCIe have
#: other names; GH200 and GB200 may have no NVLink to others.
_LINKS_GB_S: Final = (
    (re.compile(r"V100-SXM"), 150),
    (re.compile(r"A100-SXM"), 300),
    (re.compile(r"A800-SXM|H800(?! PCIe)"), 200),
    (re.compile(r"H100 80GB HBM3|H100-SXM|\bH200(?! NVL)"), 450),
    (re.compile(r"\bB200\b"), 900),
)
#: Without switches a GPU shares its links among the others: V100 in machines of 8, later ones in
#: machines of 4. So many members use all links whatever the machine.
_WITHOUT_SWITCH: Final = re.compile(r"V100")
_SWITCHED_N: Final = 8
_ALL_LINKS_N: Final = 4
#: No link of any GPU carries as much.
_NONE_GB_S: Final = 2000.0


def of_group_gb_s(
    job: CommJob, owners: Sequence[int], hosts: Collection[str | None]
) -> float | None:
    """Return what a link of a group's GPUs carries in one direction; None where not known."""
    facts = [job.collectives.devices[owner].rank.facts for owner in owners]
    gpus = _gpus(job, owners)
    if len(hosts) > 1 or None in hosts or len(gpus) != 1:
        return None
    name, machine_n = gpus.pop(), min(len(some.gpus) for some in facts if some)
    has_switch = machine_n >= _SWITCHED_N and not _WITHOUT_SWITCH.search(name)
    all_links_n = _SWITCHED_N if _WITHOUT_SWITCH.search(name) else _ALL_LINKS_N
    if not has_switch and len(owners) < all_links_n:
        return None
    return _of_gpu_gb_s(name)


def most_gb_s(job: CommJob, owners: Sequence[int], link_gb_s: float | None) -> float:
    """Return more than any link of some devices carries, whatever the machine.

    Args:
        link_gb_s: What the user says that a link carries.
    """
    peaks = [_of_gpu_gb_s(name) for name in _gpus(job, owners)] or [None]
    limits = [_NONE_GB_S if peak is None else peak * MOST_PCT / 100 for peak in peaks]
    return max(*limits, (link_gb_s or 0.0) * MOST_PCT / 100)


def _gpus(job: CommJob, owners: Sequence[int]) -> set[str]:
    facts = [job.collectives.devices[owner].rank.facts for owner in owners]
    return {name for some in facts if some for name in some.gpus}


def _of_gpu_gb_s(name: str) -> float | None:
    return next((speed for pattern, speed in _LINKS_GB_S if pattern.search(name)), None)
