"""Kernels that could be one: each layer has them, a flag is of the engine, the gain is a bound."""

from __future__ import annotations

import pytest
from effort import at_night
from finding_numbers import unexplained_numbers
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_hotspots.findings.kernels import fusion_findings, lever_findings
from nsys_llm.report.findings import finding_record
from nsys_llm.report.prices.pricing import priced

NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *, long, T1 *)"
NORM_QUANT = "void vllm::rms_norm_static_fp8_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn>(T1 *)"
QUANT = "void vllm::dynamic_per_token_scaled_fp8_quant_kernel_strided<c10::BFloat16>(T1 *)"
FOREIGN_NORM = "void flashinfer::norm::FusedAddRMSNormKernel<(unsigned int)8, __nv_bfloat16>(T1 *)"
FOREIGN_QUANT = "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn>(T1 *)"
FP4_QUANT = "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, (bool)0>(int)"
INT8_QUANT = "void vllm::dynamic_scaled_int8_quant_kernel<c10::BFloat16, float>(const T1 *)"
STATIC_QUANT = "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(T1 *)"
LAYER_NORM = "void vllm::layer_norm_kernel<c10::BFloat16>(T1 *)"
GELU = "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::gelu_tanh_kernel, true>(T1 *)"
SILU = "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel, true>(T1 *)"
ROPE = "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(const long *)"
WRITE = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(const T1 *)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
FUSED_REDUCE = (
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8>"
)
SGLANG = "write_req_to_token_pool_triton"
ATTENTION = "kernel_unified_attention_2d"
LATENT_ATTENTION = "void flash_mla_sm90::flash_fwd_splitkv_mla_kernel<int>(P)"
SCAN = "_selective_scan_update_kernel"
FOREIGN_ATTENTION = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128>>(P)"
GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_TNT"
STEPS_N, LAYERS_N, GAP_NS = 6, 5, 1_000


def written(
    folder, *layer, layers_n=LAYERS_N, attention=ATTENTION, once=(), streams=None, gpu=None
):
    """Write steps of some layers, of kernels with lengths in us."""
    step = [*once, *([*layer, (attention, 10), (GEMM, 30)] * layers_n)]
    return straight(folder, step * STEPS_N, streams=streams, gpu=gpu)


def straight(folder, kernels, late=None, streams=None, gpu=None):
    """Write kernels one after the other, of names and us, or names and 4 us; one of them late."""
    trace, at = TraceBuilder(gpu_name=gpu), 0
    for number, kernel in enumerate(kernels):
        name, us = (kernel, 4) if isinstance(kernel, str) else kernel
        at += 90_000 if number == late else GAP_NS
        stream = (streams or {}).get(name, 7)
        trace.kernel(name, start_ns=at, duration_ns=us * 1000, stream_id=stream)
        at += us * 1000
    trace.write_sqlite(folder / "rank0.sqlite")
    return folder


def found(folder, *words):
    """Return the findings on sequences by id, and the tables."""
    tables = quick("llm_hotspots", folder, *words)
    findings = priced(fusion_findings(tables), tables)
    for finding in findings:
        assert unexplained_numbers(finding_record(finding)) == []
    return {finding.name: finding for finding in findings}, tables


def test_a_norm_and_a_quantization_in_each_layer_name_the_flag_and_a_bound(tmp_path):
    findings, tables = found(written(tmp_path, (NORM, 4), (QUANT, 3)))
    (finding,) = findings.values()
    # Of 7 us that move 7 bytes a value, 4 are between the kernels, and 1 us is the gap.
    saved_ns = STEPS_N * LAYERS_N * (4_000 + GAP_NS)
    (row,) = tables["fusions"].to_dict("records")
    assert (row["sequences_n"], row["attentions_n"], row["saved_ns"]) == (30, 30, saved_ns)
    assert (finding.price.bound_ns, finding.price.about_ns) == (saved_ns, None)
    # 30 layers of 51 us: 5 of them, without the gap at the end.
    assert finding.title == (
        "Norm and quantization in each layer could be one kernel "
        "(-cc.pass_config.fuse_norm_quant=True): at most 9.8 % of the time"
    )
    assert "measure it: with all custom kernels fused, batch 64 ran" in finding.recommendation
    assert "vllm#9138" in finding.recommendation
    assert "they follow" not in finding.recommendation.lower()


@pytest.mark.parametrize("once", [((SGLANG, 1),), ()])
def test_of_an_engine_without_that_flag_and_of_none_the_sequence_is_named_alone(tmp_path, once):
    layer = (FOREIGN_NORM, 4), (FOREIGN_QUANT, 3)
    findings, _ = found(written(tmp_path, *layer, attention=FOREIGN_ATTENTION, once=once))
    (finding,) = findings.values()
    assert finding.title.startswith("Norm and quantization in each layer could be one kernel: at")
    said = finding.title + finding.details + finding.recommendation
    assert "pass_config" not in said
    assert "vllm#" not in said


@pytest.mark.parametrize(
    ("layer", "once"),
    [
        (((NORM_QUANT, 5),), ()),  # the flag is set
        (((NORM, 4), (QUANT, 3)), ((NORM_QUANT, 5),)),  # and is of few tokens alone
        (((NORM, 4), (GEMM, 9), (QUANT, 3)), ()),  # the norm's values go elsewhere
        ((), ((NORM, 4), (QUANT, 3))),  # at an end of the model, not in its layers
        ((), ((NORM, 4), (QUANT, 3), (GEMM, 9)) * 2),
        ((), ()),
    ],
)
def test_what_is_fused_or_apart_or_not_of_each_layer_is_silent(tmp_path, layer, once):
    assert found(written(tmp_path, *layer, once=once))[0] == {}


def test_two_sequences_are_no_layers(tmp_path):
    tables = quick("llm_hotspots", straight(tmp_path, [ATTENTION, NORM, QUANT] * 2))
    assert tables["fusions"].empty


def test_kernels_of_two_streams_do_not_follow_each_other(tmp_path):
    folder = written(tmp_path, (NORM, 4), (QUANT, 3), streams={QUANT: 8})
    assert found(folder)[0] == {}


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        # The longest sequence takes its kernels; an all-reduce's own time is not that of memory.
        (
            ((REDUCE, 20), (NORM, 8), (QUANT, 3)),
            {"all_reduce_norm_quantization": 8_000 + 2 * GAP_NS},
        ),
        (((REDUCE, 20), (NORM, 8)), {"all_reduce_norm": 4_000 + GAP_NS}),
        (((FUSED_REDUCE, 20), (NORM, 8)), {}),
        (((LAYER_NORM, 4), (QUANT, 3)), {"layer_norm_quantization": 4_000 + GAP_NS}),
        (((SILU, 6), (QUANT, 3)), {"activation_quantization": 4_000 + GAP_NS}),
        (((NORM, 2), (NORM, 2), (ROPE, 4), (WRITE, 2)), {"norms_rope": 2_667 + 2 * GAP_NS}),
        (((ROPE, 4), (WRITE, 4)), {"rope_kv_write": 2_000 + GAP_NS}),
    ],
)
def test_each_sequence_saves_the_bytes_between_its_kernels(tmp_path, layer, expected):
    findings, tables = found(written(tmp_path, *layer))
    saved = tables["fusions"].set_index("fusion")["saved_ns"] / (STEPS_N * LAYERS_N)
    assert {name: saved[name] for name in findings} == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    ("gpu", "layer", "named"),
    [
        ("NVIDIA H100 80GB HBM3", ((REDUCE, 20), (NORM, 8)), True),
        ("NVIDIA A100-SXM4-80GB", ((REDUCE, 20), (NORM, 8)), False),
        ("NVIDIA B200", ((NORM, 4), (FP4_QUANT, 3)), False),
        (None, ((NORM, 4), (INT8_QUANT, 3)), False),
        (None, ((NORM, 4), (FOREIGN_QUANT, 3)), True),
        # Of norms, the flags are for RMS norms.
        (None, ((LAYER_NORM, 4), (QUANT, 3)), False),
        # Of activations, for SiLU with a known scale, or one of each block.
        (None, ((SILU, 4), (STATIC_QUANT, 3)), True),
        (None, ((SILU, 4), (QUANT, 3)), False),
        (None, ((GELU, 4), (STATIC_QUANT, 3)), False),
        ("NVIDIA B200", ((SILU, 4), (FP4_QUANT, 3)), True),
        ("NVIDIA H100 80GB HBM3", ((SILU, 4), (FP4_QUANT, 3)), False),
        *at_night(
            ("NVIDIA A100-SXM4-80GB", ((NORM, 4), (QUANT, 3)), True),
            ("NVIDIA H100 80GB HBM3", ((REDUCE, 20), (LAYER_NORM, 8)), False),
            ("NVIDIA H100 80GB HBM3", ((REDUCE, 20), (LAYER_NORM, 8), (QUANT, 3)), False),
            (None, ((SILU, 4), (FOREIGN_QUANT, 3)), True),
            (None, ((SILU, 4), (INT8_QUANT, 3)), False),
            (None, ((SILU, 4), (FP4_QUANT, 3)), True),
        ),
    ],
)
def test_a_flag_that_does_nothing_here_is_not_named(tmp_path, gpu, layer, named):
    (finding,) = found(written(tmp_path, *layer, gpu=gpu))[0].values()
    assert ("pass_config" in finding.title + finding.recommendation) is named


def test_norms_of_latent_attention_are_none_of_queries_and_keys(tmp_path):
    layer, once = ((NORM, 2), (NORM, 2), (ROPE, 4)), ((WRITE, 1),)
    assert found(written(tmp_path, *layer, once=once, attention=LATENT_ATTENTION))[0] == {}


def test_what_a_faster_all_reduce_gains_is_said_to_be_in_no_bound(tmp_path):
    (finding,) = found(written(tmp_path, (REDUCE, 20), (NORM, 8)))[0].values()
    assert finding.title.endswith("% of the time, not counting a faster all-reduce")
    assert finding.details.endswith("at most, not counting a faster all-reduce.")


def test_an_engine_that_has_no_flag_on_these_gpus_is_said_so(tmp_path):
    findings, _ = found(written(tmp_path, (ROPE, 4), (WRITE, 4)))
    assert (
        "This engine has no flag for it: fuse_rope_kvcache"
        in findings["rope_kv_write"].recommendation
    )


@pytest.mark.parametrize(
    ("fused_n", "other", "said"),
    [
        (7, ATTENTION, "in each layer could"),
        (4, ATTENTION, "in 50.0 % of the layers could"),
        (3, ATTENTION, None),
        # Hybrid models have layers without attention.
        (4, SCAN, "in 50.0 % of the layers could"),
        (2, SCAN, None),
        *at_night(
            (8, ATTENTION, "in each layer could"), (6, ATTENTION, "in 75.0 % of the layers could")
        ),
    ],
)
def test_some_layers_are_not_each_layer(tmp_path, fused_n, other, said):
    # Many sequences in one layer are of one layer.
    layers = [[*[NORM, QUANT] * 2, GEMM, ATTENTION, GEMM]] * fused_n
    layers += [[GEMM, other, GEMM]] * (8 - fused_n)
    kernels = [name for layer in layers * 5 for name in layer]
    tables = quick("llm_hotspots", straight(tmp_path, kernels))
    titles = [item.title for item in fusion_findings(tables)]
    assert [said in title for title in titles] == ([True] if said else [])


def test_mixed_batches_have_two_kernels_of_attention_a_layer(tmp_path):
    tables = quick(
        "llm_hotspots", straight(tmp_path, [NORM, QUANT, GEMM, ATTENTION, WRITE, ATTENTION] * 5)
    )
    (row,) = tables["fusions"].to_dict("records")
    assert (row["layers_n"], row["attentions_n"]) == (5, 5)


def test_a_gap_that_waits_for_the_host_is_no_launch(tmp_path):
    kernels = [ATTENTION, NORM, QUANT] * 4
    tables = quick("llm_hotspots", straight(tmp_path, kernels, late=5))
    assert tables["fusions"]["gaps_ns"].tolist() == [4 * GAP_NS]


EAGER_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>"
EAGER = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>"


def test_kernels_in_a_sequence_are_no_unfused_pointwise_kernels_as_well(tmp_path):
    tables = quick("llm_hotspots", written(tmp_path, (EAGER_NORM, 4), (QUANT, 3), (EAGER, 9)))
    (general,) = (item for item in lever_findings(tables) if item.rule == "unfused_pointwise")
    assert general.impact_ns == STEPS_N * LAYERS_N * 9_000
    assert [item.name for item in fusion_findings(tables)] == ["layer_norm_quantization"]


def test_the_gpu_that_has_most_of_it_speaks_for_all(tmp_path):
    written(tmp_path, (NORM, 4), (QUANT, 3))
    (tmp_path / "rank0.sqlite").rename(tmp_path / "rank1.sqlite")
    written(tmp_path, (NORM, 4), (QUANT, 3), (GEMM, 40))
    findings, _ = found(tmp_path)
    (finding,) = findings.values()
    assert (finding.rank, finding.ranks) == (1, (0, 1))
