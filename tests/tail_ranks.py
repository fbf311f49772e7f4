"""Reports of a few ranks that meet in collectives, for tests of tail_stats."""

from results import tables_of
from trace_builder import TraceBuilder

RECIPE = "tail_stats"
N = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
V = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)3>(vllm::RankData *, int)"

#: Collectives that leave all ranks at these instants, at uneven distances.
ENDS = [
    1_000 * at for at in (20, 51, 84, 130, 171, 207, 260, 299, 345, 380, 433, 470, 519, 560, 601)
]


def tail_tables(folder, output, *options):
    return tables_of(output, folder, options=options, recipe=RECIPE)


def write_ranks(folder, lengths, *, ahead_ns=None, without=None):
    """Write one report a rank; `lengths[rank]` says how long before each end the rank comes."""
    folder.mkdir()
    for rank, length in enumerate(lengths):
        ahead = (ahead_ns or {}).get(rank, 0)
        trace = TraceBuilder(hostname=f"node{rank}")
        trace.kernel("gemm", start_ns=ahead + 1_000, end_ns=ahead + 2_000)
        for number, end in enumerate(ENDS):
            if number not in (without or {}).get(rank, ()):
                early_ns = length[number % len(length)]
                trace.kernel(N, start_ns=ahead + end - early_ns, end_ns=ahead + end)
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder
