"""Kernels with something faster: rules fire where they are planted, not beside innocents."""

from __future__ import annotations

import pytest
from effort import at_night
from finding_numbers import unexplained_numbers
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_hotspots.findings.kernels import lever_findings
from nsys_llm.report.findings import finding_record
from nsys_llm.report.prices.pricing import priced

FA2 = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128>, (bool)0>(Flash_fwd_params)"
FA2_BACK = "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<traits>(Flash_bwd_params)"
FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
    "flash::CollectiveMainloopFwdSm90<(int)2>, flash::CollectiveEpilogueFwd<>>>>(T1::Params)"
)
EAGER = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(int)>"
CAST = (
    "void at::native::vectorized_elementwise_kernel<(int)8, at::native::bfloat16_copy_kernel_cuda"
)
CAST_STRIDED = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(int)::"
    "[lambda(float) (instance 1)], at::native::memory::LoadWithCast<(int)1>>(int)"
)
ADD_CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, LoadWithCast"
)
FUSED = "triton_poi_fused_add_mul_0"
NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *, long, T1 *)"
GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
MARLIN = "void marlin::Marlin<(long)5, (int)256>(const int4 *)"
MARLIN_MANGLED = "_ZN6marlin6MarlinILl5ELi256EEEvPK4int4"
CUTLASS = "cutlass_80_tensorop_bf16_s16816gemm_128x64"
XMMA = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
TRANSFER = "void lmc::single_layer_kv_transfer_kernel<long>(T1 *)"
RESHAPE = "void vllm::reshape_and_cache_flash_kernel<float>(const T1 *)"
FOREIGN = (
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<(int)128>>(Flash_params)",
    "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<(int)128>>(P)",
    "my_flash_fwd_kernel",
    "flash_fwd_kernel_of_mine",
)
CUDA_CORES = (
    "ampere_sgemm_128x64_tn",
    "volta_fp16_sgemm_fp16_128x64_nn",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x128x8_stage3_warpsize1x2x1_ffma_aligna4",
)
TENSOR_CORES = (
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_tn",
    "cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4",
    "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_tensor16x8x8_execute",
    "ampere_bf16_s16816gemm_bf16_128x64_tn",
    GEMM,
)
HOPPER, AMPERE, BLACKWELL = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA B200"
GENERAL, GEFORCE = "gemms_without_tensor_cores", "geforce_gemms_without_tensor_cores"


def findings_by_rule(folder, *ranks, gpu=HOPPER):
    """Return the findings by rule; a rank is a list of names and lengths, one after the other."""
    for number, kernels in enumerate(ranks):
        trace, at = TraceBuilder(gpu_name=gpu), 0
        for name, length in kernels:
            trace.kernel(name, start_ns=at, duration_ns=length)
            at += length
        trace.write_sqlite(folder / f"rank{number}.sqlite")
    tables = quick("llm_hotspots", folder)
    findings = priced(lever_findings(tables), tables)
    for finding in findings:
        assert unexplained_numbers(finding_record(finding)) == []
    return {finding.rule: finding for finding in findings}


@pytest.mark.parametrize(
    ("gpu", "names", "rules"),
    [
        # There is no FlashAttention-3 on other GPUs.
        *((gpu, [FA2, GEMM], []) for gpu in (AMPERE, BLACKWELL, "NVIDIA L40S")),
        # Where the GPU is not recorded, its kernels tell.
        (None, [FA2, "nvjet_tst_192x192_64x4"], ["old_attention"]),
        (None, [FA2, "nvjet_sm100_tst_192x192"], []),
        (None, [FA2, "k"], []),
        # Decoding and foreign attention, and what is new or fused.
        (HOPPER, FOREIGN, []),
        (HOPPER, [FA3, FUSED, NORM], []),
        # Copies of one type and sums are no conversions.
        (HOPPER, [COPY, ADD_CAST, EAGER], ["unfused_pointwise"]),
        (AMPERE, TENSOR_CORES, []),
        *((gpu, CUDA_CORES[:1], []) for gpu in (BLACKWELL, "Tesla P100-SXM2-16GB", None)),
        ("NVIDIA GeForce GTX 1080 Ti", CUDA_CORES[:1], []),
        (BLACKWELL, [MARLIN], ["marlin_on_fp4"]),
        (
            "NVIDIA GB300",
            [MARLIN_MANGLED, XMMA],
            ["marlin_on_fp4", "old_architecture_gemm_on_blackwell"],
        ),
        ("NVIDIA H200", [MARLIN, GEMM, RESHAPE], []),
        ("NVIDIA H200", [CUTLASS, TRANSFER], ["kv_transfers", "old_architecture_gemm"]),
        # mma.sync is what these have.
        (AMPERE, [CUTLASS], []),
        ("NVIDIA GeForce RTX 5090", [CUTLASS], []),
    ],
)
def test_levers_are_those_of_the_kernels_and_the_gpu(tmp_path, gpu, names, rules):
    found = findings_by_rule(tmp_path, [(name, 900_000) for name in names], gpu=gpu)
    assert sorted(found) == rules


def test_flash_attention_2_on_hopper_leaves_two_thirds(tmp_path):
    finding = findings_by_rule(tmp_path, [(FA2, 600_000), (FA2_BACK, 300_000), ("k", 100_000)])[
        "old_attention"
    ]
    # A third of 900 us, of 1 ms; at most half.
    assert finding.price.about_ns == pytest.approx(300_000, rel=1e-3)
    assert (finding.price.bound_ns, finding.price.about_basis) == (450_000, "usual")
    assert (finding.price.span_ns, finding.severity) == (1_000_000, "high")
    assert (finding.cause.detail, finding.rank, finding.name) == ("attention", 0, "attention")
    assert finding.title == "FlashAttention-2 on Hopper: 90.0 % of the time"
    assert "2 launches of 2 kernels take 900 us of 1 ms" in finding.details


@pytest.mark.slow
def test_eager_pointwise_kernels_gain_two_thirds_of_their_time_on_the_worst_gpu(tmp_path):
    usual = [(EAGER, 100_000), (COPY, 100_000), (FUSED, 800_000)]
    worse = [(EAGER, 200_000), (COPY, 100_000), (FUSED, 700_000)]
    finding = findings_by_rule(tmp_path, usual, worse)["unfused_pointwise"]
    assert (finding.rank, finding.price.bound_ns) == (1, 300_000)
    assert finding.price.about_ns == pytest.approx(200_000, rel=1e-3)
    assert (finding.severity, finding.cause.detail) == ("high", "pointwise")
    assert finding.title == "Unfused pointwise kernels"


def test_a_little_of_it_is_not_shown(tmp_path):
    finding = findings_by_rule(tmp_path, [(EAGER, 9_000), (FUSED, 991_000)])["unfused_pointwise"]
    assert finding.severity is None


def test_conversions_of_the_data_type_gain_all_of_their_time(tmp_path):
    kernels = [(CAST, 100_000), (CAST_STRIDED, 50_000), (COPY, 60_000), (FUSED, 790_000)]
    rules = findings_by_rule(tmp_path, kernels)
    finding = rules["dtype_conversions"]
    assert (finding.price.about_ns, finding.price.bound_ns) == (150_000, 150_000)
    # The others are those that have work of their own.
    assert rules["unfused_pointwise"].price.bound_ns == 60_000
    assert rules["unfused_pointwise"].price.about_ns == pytest.approx(40_000, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "rule"),
    [
        (AMPERE, GENERAL),
        ("NVIDIA RTX A6000", GENERAL),
        ("NVIDIA GeForce RTX 3070 Ti", GEFORCE),
        ("NVIDIA TITAN RTX", GEFORCE),
        *at_night(
            ("NVIDIA GeForce RTX 4090", GEFORCE), ("NVIDIA RTX 6000 Ada Generation", GENERAL)
        ),
    ],
)
def test_products_on_cuda_cores_gain_up_to_the_ratio_of_the_rates(tmp_path, gpu, rule):
    kernels = [*((name, 200_000) for name in CUDA_CORES), (FUSED, 200_000)]
    ((found, finding),) = findings_by_rule(tmp_path, kernels, gpu=gpu).items()
    assert (found, finding.price.about_ns) == (rule, 400_000)
    if gpu == AMPERE:  # 19.5 of 312 TFLOP/s leave a sixteenth of 800 us at least
        assert finding.price.bound_ns == 800_000 - 800_000 * 19.5 / 312
    assert (finding.cause.detail, finding.name) == ("gemm", "gemm")
    assert "4 launches of 4 kernels" in finding.details
    assert "The fix usually leaves 50.0 % of it" in finding.details
    assert ("TF32 gains little" in finding.recommendation) == (rule == GEFORCE)


@pytest.mark.traces
def test_the_real_training_on_a_geforce(traces):
    path = traces / "public" / "training_rtx3070ti.sqlite"
    findings = quick("llm_hotspots", path)["findings"].set_index("rule")
    # Half of 38.7 % of the span.
    assert findings.loc[GEFORCE, "gain_pct"] == pytest.approx(38.7 / 2, abs=0.1)
