"""Kernels with something faster: rules fire where they are planted, not beside innocents."""

from __future__ import annotations

import pytest
from finding_numbers import unexplained_numbers
from quick_run import quick

from nsys_llm.recipes.llm_hotspots.findings.levers import lever_findings
from nsys_llm.report.findings import finding_record
from nsys_llm.testing.trace_builder import TraceBuilder

FA2 = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128>, (bool)0>(Flash_fwd_params)"
FA2_BACK = "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<traits>(Flash_bwd_params)"
FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
    "flash::CollectiveMainloopFwdSm90<(int)2>, flash::CollectiveEpilogueFwd<>>>>(T1::Params)"
)
EAGER = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(int)>"
FUSED = "triton_poi_fused_add_mul_0"
NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *, long, T1 *)"
HOPPER, AMPERE, BLACKWELL = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA B200"


def found(folder, *ranks, gpu=HOPPER):
    """Return the findings by rule; a rank is a list of names and lengths, one after the other."""
    for number, kernels in enumerate(ranks):
        trace, at = TraceBuilder(gpu_name=gpu), 0
        for name, length in kernels:
            trace.kernel(name, start_ns=at, duration_ns=length)
            at += length
        trace.write_sqlite(folder / f"rank{number}.sqlite")
    findings = lever_findings(quick("llm_hotspots", folder))
    for one in findings:
        assert unexplained_numbers(finding_record(one)) == []
    return {one.rule: one for one in findings}


def test_flash_attention_2_on_hopper_leaves_two_thirds(tmp_path):
    one = found(tmp_path, [(FA2, 600_000), (FA2_BACK, 300_000), ("k", 100_000)])["old_attention"]
    # A third of 900 us, of 1 ms.
    assert one.gain.gain_ns == pytest.approx(300_000, rel=1e-3)
    assert (one.gain.span_ns, one.gain.is_bound, one.severity) == (1_000_000, False, "high")
    assert (one.culprit, one.rank, one.name) == ("kernel:attention", 0, "attention")
    assert one.title == "`FlashAttention-2` on Hopper: 90.0 % (rank 0)"
    assert "2 launches of 2 kernels take 900 us of 1 ms" in one.details


@pytest.mark.parametrize("gpu", [AMPERE, BLACKWELL, "NVIDIA L40S"])
def test_on_other_gpus_there_is_no_flash_attention_3(tmp_path, gpu):
    assert found(tmp_path, [(FA2, 900_000), ("nvjet_tst_192x192", 9)], gpu=gpu) == {}


@pytest.mark.parametrize(
    ("beside", "fires"),
    [("nvjet_tst_192x192_64x4", True), ("nvjet_sm100_tst_192x192", False), ("k", False)],
)
def test_where_the_gpu_is_not_recorded_its_kernels_tell(tmp_path, beside, fires):
    rules = found(tmp_path, [(FA2, 900_000), (beside, 9)], gpu=None)
    assert ("old_attention" in rules) == fires


def test_new_attention_and_fused_kernels_have_nothing_faster(tmp_path):
    assert found(tmp_path, [(FA3, 500_000), (FUSED, 300_000), (NORM, 100_000)]) == {}


def test_eager_pointwise_kernels_gain_at_most_their_time_on_the_worst_gpu(tmp_path):
    usual = [(EAGER, 100_000), (COPY, 100_000), (FUSED, 800_000)]
    worse = [(EAGER, 200_000), (COPY, 100_000), (FUSED, 700_000)]
    one = found(tmp_path, usual, worse)["unfused_pointwise"]
    assert (one.rank, one.gain.gain_ns, one.gain.is_bound) == (1, 300_000, True)
    assert (one.severity, one.culprit) == ("high", "kernel:pointwise")
    assert one.title == "Unfused pointwise kernels (rank 1)"


def test_a_little_of_it_is_not_shown(tmp_path):
    one = found(tmp_path, [(EAGER, 9_000), (FUSED, 991_000)])["unfused_pointwise"]
    assert one.severity is None
