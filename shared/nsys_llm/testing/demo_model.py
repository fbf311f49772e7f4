"""A small model of GPU time: ranks that launch the same work and meet in collectives.

Times are int64 ns of one clock that all ranks share; arrays have one entry per rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Dim3 = tuple[int, int, int]
IntArray = NDArray[np.int64]
Span = tuple[IntArray, IntArray]

#: Host time of a launch, from its start to its return, and until the next call.
_LAUNCH_NS: Final = 4_400
_BETWEEN_CALLS_NS: Final = 1_300
#: Host time of opening or closing an NVTX range.
_RANGE_CALL_NS: Final = 150
#: GPU time between the launch's return and the kernel on an idle stream, and between two kernels.
_LAUNCH_LATENCY_NS: Final = 1_800
_EAGER_GAP_NS: Final = 960
_GRAPH_GAP_NS: Final = 640
#: How far apart the ranks leave a collective.
_COLLECTIVE_SPREAD_NS: Final = 4_000
#: Kernel durations in real reports are multiples of this.
_TICK_NS: Final = 32


@dataclass(frozen=True)
class KernelKind:
    """One kernel in one launch configuration.

    Attributes:
        duration_ns: Typical duration; for a collective, from the last rank's arrival to the end.
        outlier_rate: Share of launches that take `outlier_factor` times as long.
    """

    name: str
    duration_ns: int
    grid: Dim3
    block: Dim3 = (128, 1, 1)
    dynamic_shared_bytes: int = 0
    collective: bool = False
    outlier_rate: float = 0.0
    outlier_factor: float = 1.0


@dataclass
class RankSet:
    """What the ranks did, as it is added.

    Attributes:
        slowness: How much longer each rank's own kernels take.
        host_ns: When the launching thread of each rank is free.
        gpu_ns: When the stream of each rank is free.
        kinds: The kernels in use; the lists below refer to them by position.
        kernels: Kind, graph node id (0 without a graph), number of the API call, and times.
        copies: CUPTI kind, size in bytes, number of the API call, and times; a fill is a `memset`.
        ranges: NVTX text and domain, and times.
    """

    rng: np.random.Generator
    slowness: NDArray[np.float64]
    host_ns: IntArray = field(init=False)
    gpu_ns: IntArray = field(init=False)
    kinds: dict[KernelKind, int] = field(default_factory=dict)
    kernels: list[tuple[int, int, int, IntArray, IntArray]] = field(default_factory=list)
    copies: list[tuple[str, int, int, IntArray, IntArray]] = field(default_factory=list)
    calls: list[tuple[str, IntArray, IntArray]] = field(default_factory=list)
    ranges: list[tuple[str, str, IntArray, IntArray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.host_ns = np.zeros(len(self.slowness), dtype=np.int64)
        self.gpu_ns = np.zeros(len(self.slowness), dtype=np.int64)

    def call(self, name: str, duration_ns: int) -> Span:
        """Add an API call that starts no work, and return its times."""
        start_ns = self.host_ns
        end_ns = start_ns + self._varied(duration_ns, 0.08)
        self.calls.append((name, start_ns, end_ns))
        self.host_ns = end_ns + self._varied(_BETWEEN_CALLS_NS, 0.15)
        return start_ns, end_ns

    def work_on_host(self, duration_ns: int) -> None:
        """Let the host be busy without CUDA."""
        self.host_ns = self.host_ns + self._varied(duration_ns, 0.05)

    def synchronize(self, *, wake_up_ns: int) -> None:
        """Add a cudaStreamSynchronize that returns some time after the stream is done."""
        start_ns = self.host_ns
        end_ns = np.maximum(start_ns + 2_000, self.gpu_ns) + self._varied(wake_up_ns, 0.05)
        self.calls.append(("cudaStreamSynchronize_v3020", start_ns, end_ns))
        self.host_ns = end_ns + self._varied(_BETWEEN_CALLS_NS, 0.15)

    def launch(self, kind: KernelKind) -> None:
        """Launch one kernel by itself."""
        _, returned_ns = self.call("cudaLaunchKernel_v7000", _LAUNCH_NS)
        self._run(kind, 0, np.maximum(self.gpu_ns + _EAGER_GAP_NS, returned_ns + 1_200))

    def launch_graph(self, kinds: Sequence[KernelKind], *, graph_exec_id: int) -> None:
        """Launch a graph whose nodes are kernels."""
        _, returned_ns = self.call("cudaGraphLaunch_v10000", 60_000)
        earliest_ns = returned_ns + _LAUNCH_LATENCY_NS
        for number, kind in enumerate(kinds, start=1):
            node_id = (graph_exec_id << 32) | number
            self._run(kind, node_id, np.maximum(self.gpu_ns + _GRAPH_GAP_NS, earliest_ns))

    def copy(self, kind: str, size_bytes: int, duration_ns: int, *, staging_ns: int = 0) -> None:
        """Add a copy or fill (`memset`); with `staging_ns` a synchronous one from pageable memory.

        Args:
            kind: CUPTI copy kind, or `memset`.
            staging_ns: Host time before the GPU starts; the call then waits for the copy.
        """
        if not staging_ns:
            name = "cudaMemsetAsync_v3020" if kind == "memset" else "cudaMemcpyAsync_v3020"
            _, ready_ns = self.call(name, 5_200)
        else:
            ready_ns = self.host_ns + self._varied(staging_ns, 0.05)
        number = len(self.calls) - (0 if staging_ns else 1)
        start_ns = np.maximum(self.gpu_ns + _EAGER_GAP_NS, ready_ns + _LAUNCH_LATENCY_NS)
        end_ns = start_ns + self._varied(duration_ns, 0.02)
        self.copies.append((kind, size_bytes, number, start_ns, end_ns))
        self.gpu_ns = end_ns
        if staging_ns:
            self.calls.append(("cudaMemcpy_v3020", self.host_ns, end_ns + 6_000))
            self.host_ns = end_ns + 8_000

    @contextmanager
    def range(self, text: str, *, domain: str = "") -> Iterator[None]:
        """Put an NVTX range around what is added inside."""
        start_ns = self.host_ns
        position = len(self.ranges)
        self.ranges.append((text, domain, start_ns, start_ns))
        self.host_ns = start_ns + _RANGE_CALL_NS
        yield
        end_ns = self.host_ns + _RANGE_CALL_NS
        self.ranges[position] = (text, domain, start_ns, end_ns)
        self.host_ns = end_ns + _RANGE_CALL_NS

    def _run(self, kind: KernelKind, node_id: int, start_ns: IntArray) -> None:
        code = self.kinds.setdefault(kind, len(self.kinds))
        if kind.collective:
            spread = self.rng.integers(0, _COLLECTIVE_SPREAD_NS, len(self.slowness))
            end_ns = start_ns.max() + self._varied(kind.duration_ns, 0.02)[0] + spread
        else:
            factor = self.slowness.copy()
            factor[self.rng.random(len(factor)) < kind.outlier_rate] *= kind.outlier_factor
            typical_ns = (self._varied(kind.duration_ns, 0.015) * factor).astype(np.int64)
            end_ns = start_ns + np.maximum(typical_ns // _TICK_NS, 1) * _TICK_NS
        self.kernels.append((code, node_id, len(self.calls) - 1, start_ns, end_ns))
        self.gpu_ns = end_ns

    def _varied(self, duration_ns: int, share: float) -> IntArray:
        noise = self.rng.standard_normal(len(self.slowness)).clip(-3, 3)
        varied: IntArray = (duration_ns * (1 + share * noise)).astype(np.int64)
        return varied
