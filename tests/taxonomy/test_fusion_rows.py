"""The sequences of kernels that engines fuse: data that hold together."""

import re

import pytest

from nsys_llm.taxonomy.categories import ENGINES
from nsys_llm.taxonomy.data_files import data_file
from nsys_llm.taxonomy.kernel_levers import element_of, fused_already, load_fusions

FUSIONS = load_fusions()


@pytest.mark.parametrize("fusion", FUSIONS.values(), ids=lambda item: item.id)
def test_a_row_names_elements_bytes_and_where_its_flags_are_from(fusion):
    assert {*fusion.sequence} <= {*data_file("fusions")["elements"]}
    assert len(fusion.sequence) == len(fusion.moved) > 1
    assert 0 < fusion.share < 1
    assert {*fusion.flags} <= {*ENGINES}
    for engine, flag in fusion.flags.items():
        assert re.search(rf"{engine}#\d+", flag.source)
        assert (flag.slower is not None) == (flag.flag is not None)


def test_a_sequence_that_holds_another_one_is_looked_for_first():
    def text(fusion):
        return " ".join(fusion.sequence)

    rows = [*FUSIONS.values()]
    for at, row in enumerate(rows):
        assert not any(text(earlier) in text(row) for earlier in rows[:at])


@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("void vllm::rms_norm_kernel<c10::BFloat16, (int)8, (int)2>(T1 *, const T1 *)", "norm"),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_1", "norm"),
        ("triton_per_fused_add_native_layer_norm_3", "layer_norm"),
        ("void vllm::layer_norm_kernel<c10::BFloat16>(T1 *)", "layer_norm"),
        (
            "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)0>",
            "layer_norm",
        ),
        ("void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)1>", "norm"),
        ("_chunk_scan_fwd_kernel", "attention"),
        ("_causal_conv1d_update_kernel", None),
        ("triton_poi_fused_mul_silu_slice_1", "activation"),
        ("void <unnamed>::fused_qknorm_warp<(long)128, (bool)1, __nv_bfloat16>(T1)", "norm"),
        ("void vllm::cvt_fp16_to_fp4<__nv_bfloat16, (bool)0>(int)", "quantization"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)4>(T1)", "all_reduce"),
        ("store_kvcache", "kv_write"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096>)", None),
        ("void vllm::rms_norm_dynamic_per_token_quant_kernel<c10::BFloat16>(T1 *)", None),
        ("_silu_and_mul_post_quant_kernel", None),
        ("void tensorrt_llm::kernels::fusedQKNormRopeKernel<(int)128, (bool)1>(T1)", None),
        ("void at::native::vectorized_elementwise_kernel<(int)4>(int)", None),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_TNT", "product"),
    ],
)
def test_kernels_are_the_elements_that_their_names_say(name, element):
    assert element_of(name) == element


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("void vllm::fused_add_rms_norm_static_fp8_quant_kernel<c10::BFloat16, (int)8>(T1 *)",
         {"norm_quantization", "layer_norm_quantization"}),
        ("void vllm::act_and_mul_quant_kernel<c10::BFloat16, vllm::silu_kernel>(T1 *)",
         {"activation_quantization"}),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8>",
         {"all_reduce_norm", "all_reduce_norm_quantization", "all_reduce_layer_norm",
          "all_reduce_layer_norm_quantization"}),
        ("void vllm::fusedQKNormRopeKernel<(int)128, (bool)1>(T1)", {"norms_rope", "norm_rope"}),
        # Its norms are not those of queries and keys.
        ("void flash_mla_sm90::flash_fwd_splitkv_mla_kernel<int>(P)", {"norms_rope", "norm_rope"}),
        ("void applyBiasRopeUpdateKVCacheV2<__nv_bfloat16>(T1)", {"rope_kv_write"}),
        ("void vllm::rms_norm_kernel<c10::BFloat16>(T1)", set()),
    ],
)  # fmt: skip
def test_a_kernel_that_does_all_at_once_says_that_a_sequence_is_fused(name, ids):
    assert fused_already([name]) == ids
