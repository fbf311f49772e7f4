"""What to record next time knows what was traced, and else how the engine marks its steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_capture_summary import FACTS, report, run_of

from nsys_llm.report.capture_summary import unrecorded, without_traced
from nsys_llm.report.findings import Evidence, Finding
from nsys_llm.trace.wall import RankWall

CUDA_ALONE = replace(FACTS, traced=("Cuda",))
VLLM = ("void vllm::rms_norm_kernel<float>(T1 *)", "reshape_and_cache_flash_kernel")


def finding(record):
    return Finding(
        "r", "run", "Title", "Details.", ("wall",), "Advice.", kind="capture", record=record,
        evidence=(Evidence("wall", (), "time_ns", 1),),
    )  # fmt: skip


def profile(facts, names=()):
    made = report(0, facts)
    ranks = tuple(replace(rank, wall=RankWall(names)) for rank in made.ranks)
    return replace(made, ranks=ranks)


@pytest.mark.parametrize(
    ("record", "left"),
    [
        ("--trace=cuda,nvtx", None),
        ("--trace=nvtx", None),
        ("--trace=cuda,nvtx --cuda-graph-trace=node", "--cuda-graph-trace=node"),
        ("--trace=cuda,nvtx,osrt,python-gil", "--trace=cuda,osrt,python-gil"),
        ("--trace=cuda,nvtx --pytorch=autograd-nvtx", "--pytorch=autograd-nvtx"),
        ("--trace=cuda", "--trace=cuda"),
        ("--gpu-metrics-devices=all", "--gpu-metrics-devices=all"),
        (None, None),
    ],
)
def test_nvtx_is_advised_only_where_it_was_not_traced(record, left):
    (made,) = without_traced([finding(record)], [profile(FACTS, VLLM)])
    assert made.record == left
    is_switch = record is not None and left is None
    assert ("start_profile" in made.recommendation) == is_switch
    (made,) = without_traced([finding(record)], [profile(FACTS), profile(CUDA_ALONE)])
    assert (made.record, made.recommendation) == (record, "Advice.")


@pytest.mark.parametrize(
    ("names", "switch"),
    [
        (VLLM, "start_profile"),
        (("write_req_to_token_pool_triton",), "SGLANG_ENABLE_NVTX_OPERATIONS=1"),
        (("void tensorrt_llm::kernels::applyBiasRopeUpdateKVCache<float>()",), "_forward_step"),
        (("void at::native::vectorized_elementwise_kernel<4>()",), "--pytorch=autograd-nvtx"),
    ],
)
def test_the_switch_is_that_of_the_engine(names, switch):
    (made,) = without_traced([finding("--trace=cuda,nvtx")], [profile(FACTS, names)])
    assert switch in made.recommendation
    lacking = replace(profile(FACTS, names), absent_tables=("nvtx_events",))
    (item,) = unrecorded(run_of([lacking]))
    assert switch in item.text
    assert "--trace=nvtx`" not in item.text
    lacking = replace(profile(CUDA_ALONE, names), absent_tables=("nvtx_events",))
    (item,) = unrecorded(run_of([lacking]))
    assert item.record == "--trace=nvtx"
