"""What the host's threads did while the devices of a rank waited for them."""

from __future__ import annotations

from nsys_llm.analyses.host.exposed import exposed_stretches
from nsys_llm.analyses.host.part import host_part
from nsys_llm.analyses.host.states import has_host_records
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.trace.host_part import HostPart


def map_host(view: RankView) -> HostPart | None:
    """Return what threads did in gaps, all of them; None where only CUDA calls are recorded."""
    if not has_host_records(view.trace):
        return None
    exposed = {
        ops.device_id: exposed_stretches(ops.gaps, ops.launch_row, view.host)
        for ops in view.device_ops
    }
    return host_part(view.trace, view.host, view.steps, exposed)
