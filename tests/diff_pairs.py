"""Pairs of runs with planted changes, for the tests of trace_diff."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nsys_llm.testing.trace_builder import TraceBuilder

#: Kernels of a vLLM server in the blog's two profiles: calls, and ns a call in each. 8,955 calls.
COMMON = {
    "device_kernel": (748, 1_173_000, 1_173_000),
    "void at::native::vectorized_elementwise_kernel<(int)4>(int)": (883, 69_000, 69_000),
    "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16 *)": (3_000, 2_000, 2_000),
    "void vllm::act_and_mul_kernel<c10::BFloat16>(c10::BFloat16 *)": (3_736, 3_000, 3_000),
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(const int *)": (392, 3_060, 15_892),
}
#: Seven variants of GEMM, 28 calls of each, in the one profile, and seven others in the other.
OLD_GEMMS = [f"nvjet_tst_{64 + 8 * i}x8_64x16_1x1_v_bz_TNN" for i in range(7)]
NEW_GEMMS = [f"nvjet_tst_192x{64 + 8 * i}_64x4_2x1_v_bz_coopB_TNN" for i in range(7)]
OLD_GEMM_NS, NEW_GEMM_NS = 92_000, 449_000
GEMM_CALLS = 28
ATTENTION = next(name for name in COMMON if "flash" in name)


def blog_run(after: bool) -> TraceBuilder:
    """Return one of the blog's two profiles."""
    gemms = NEW_GEMMS if after else OLD_GEMMS
    rows = [(name, calls, new if after else old) for name, (calls, old, new) in COMMON.items()]
    rows += [(name, GEMM_CALLS, NEW_GEMM_NS if after else OLD_GEMM_NS) for name in gemms]
    names = [name for name, _, _ in rows]
    codes = np.concatenate([np.full(calls, i) for i, (_, calls, _) in enumerate(rows)])
    lengths = np.concatenate([np.full(calls, ns) for _, calls, ns in rows])
    # Round-robin of a kind: what was launched together runs together, with a tick of jitter.
    order = np.random.default_rng(1).permutation(codes.size)
    codes, lengths = codes[order], lengths[order] + 32 * (np.arange(codes.size) % 3)
    starts = 1_000_000 + np.concatenate(([0], np.cumsum(lengths + 1_000)[:-1]))
    trace = TraceBuilder(hostname="node").process(pid=1, name="vllm")
    trace.kernels(
        names,
        codes,
        start_ns=starts,
        end_ns=starts + lengths,
        launch_ns=(starts - 9_000, starts - 4_000),
        grid=(132, 1, 1),
    )
    last = int(starts[-1] + lengths[-1])
    copies, size = (53, 3_075_000) if after else (29, 2_793_000)
    for index in range(copies):
        at = last + 20_000 * (index + 1)
        trace.memcpy("DtoD", start_ns=at, duration_ns=5_000, size_bytes=size)
    return trace


def blog_pair(folder: Path) -> tuple[Path, Path]:
    """Write both profiles and return their paths."""
    folder.mkdir(exist_ok=True)
    return (
        blog_run(after=False).write_sqlite(folder / "bs1.sqlite"),
        blog_run(after=True).write_sqlite(folder / "bs16.sqlite"),
    )
