"""Which devices run the same part of a model: those with 90 % of their operations in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsys_llm.analyses.ranks.peers import COMMON, in_common
from nsys_llm.taxonomy.categories import detect_engine, load_rules
from nsys_llm.taxonomy.communication import is_communication

from ..per_rank.steps import DeviceSteps


def model_parts(devices: Sequence[DeviceSteps]) -> tuple[int, ...]:
    """Return the number of the model part of each device, stages apart from parts.

    Communication is left out. A device is compared with the first one of each part.
    """
    names = {name for device in devices for name, _ in device.launches}
    rules = load_rules(detect_engine(names))
    mixes: list[Mapping[str, float]] = []
    parts = []
    for device in devices:
        counts: dict[str, int] = {}
        for name, launches_n in device.launches:
            if not is_communication(name):
                kind = rules.classify(name).operation or name
                counts[kind] = counts.get(kind, 0) + launches_n
        whole = max(sum(counts.values()), 1)
        mix = {kind: launches_n / whole for kind, launches_n in counts.items()}
        for number, first in enumerate(mixes):
            if in_common(first, mix) >= COMMON:
                parts.append(number)
                break
        else:
            parts.append(len(mixes))
            mixes.append(mix)
    return tuple(parts)
