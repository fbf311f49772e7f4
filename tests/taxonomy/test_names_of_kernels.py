"""Names of kernels, as engines and libraries launch them, and the work that each does."""

from __future__ import annotations

import re

import pytest

from nsys_llm.taxonomy.categories import ENGINES, UNMATCHED, load_rules
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.taxonomy.names import unmangled

#: Names that mislead other rule sets, names of real runs of PyTorch and vLLM, and those of 2026.
BY_CATEGORY = {
    "kv_cache": [
        # "flash" does not make a cache write attention
        "reshape_and_cache_kernel_flash",
        "void lmc::load_and_reshape_multi_layer_kernel<long, (bool)0, (int)1>(T1 *, T1 **)",
        "void lmc::load_and_reshape_multi_layer_kernel_unilateral<long, (bool)1>(T1 *, T1 **)",
        "void lmc::single_layer_kv_transfer_kernel<long, (bool)0>(T1 *, T1 *)",
        "void transfer_kernel_impl<&get_global_offset_lf<const char>, (bool)0>(const void *)",
        "void transfer_kv_per_layer_mla_kernel<(int)32>(const void *, void *)",
        "transfer_kv_per_layer",
        "void load_cache_to_device_buffer_kernel<(int)1024, (int)2048, (int)4096>(const int *)",
        "load_cache_to_device_buffer_dsv4_mla",
        "void <unnamed>::hicache_transfer_per_layer<(long)128, (unsigned int)4>(HicacheParams)",
    ],
    "moe": [
        # a grouped GEMM of experts is not a plain GEMM, a plain GemmUniversal is not an expert's
        "void cutlass::device_kernel<GemmUniversal<gemm::GroupProblemShape<int>>>",
        "__get_group_gemm_starts",
        "void deep_gemm::fp8_gemm_kernel<(int)128, (deep_gemm::GemmType)1>()",
        "bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_sm100f",
        # an argument type called GroupedGemmInput does not make helpers GEMMs
        "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<float, "
        "(TmaWarpSpecializedGroupedGemmInput::FpXBlockScalingType)1>()",
        "void moe::dev::activation::activationDeepSeekKernel<moe::dev::KernelParams<float>>(T1)",
        "void moe::dev::activation::activationKernel<moe::dev::KernelParams<float>>(T1)",
        "void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::KernelParams<float>>(T1)",
        "finalizeKernel",
        "finalizeDeepSeekKernel",
        "kernel_cake_deepseek_routing_topk_0",
        "_routing_compute_expt_offs",
        "void tensorrt_llm::kernels::computeSendRecvIndicesDevice<(int)32>(int *)",
        "void tensorrt_llm::kernels::moe_prepare::allToAllMetadataDevice<int>(int *)",
        "void tensorrt_llm::kernels::moePermuteKernel<__nv_bfloat16>(T1 *)",
        "void apply_shuffle_mul_sum_kernel<c10::BFloat16>(const T1 *, T1 *, const int *)",
        "sm100_mega_moe_pre_dispatch",
    ],
    "gemm": [
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int>>",
        "void deep_gemm::fp8_gemm_kernel<(int)128, (deep_gemm::GemmType)0>()",
        # the reduction of split K belongs to its GEMM
        "splitKreduce_kernel",
        "ampere_s16816gemm_fp16_128x64_ldg8_stages_32x6_tn",
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize32x32x64_execute_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_s161616gemm_f16_32x32_128x2_tn_align8>()",
        "void marlin::Marlin<(long)1125899906909960, (int)256, (bool)0>(const int4 *)",
    ],
    "norm": [
        # quantisation fused into a norm or an activation
        "void vllm::rms_norm_static_fp8_quant_kernel<c10::Half, c10::Float8_e4m3fn>()",
        "_ZN4vllm25fused_add_rms_norm_kernelIN3c108BFloat16ELi8EEEvPT_",
        "mhc_pre_big_fuse_kernel",
        "mhc_post_bf16_hc4_kernel",
        "mhc_fused_tilelang_kernel",
        "hc_split_sinkhorn_kernel_",
    ],
    "activation": [
        "_ZN4vllm18act_and_mul_kernelIN3c108BFloat16EXadL_ZNS_11silu_kernelIS2_EET_RKS4_EELb1EEE"
    ],
    "communication": [
        # collectives that are not called nccl
        "void vllm::cross_device_reduce_2stage<__half, (int)4>()",
        "void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>()",
        "void flashinfer::allreduce_fusion_kernel_twoshot_sync<int>()",
        "_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE",
        "void hybrid_ep::dispatch_kernel<unsigned short, (int)8>(dispatch_kernel_param_t<T1>)",
        "void hybrid_ep::combine_kernel<(int)8>(hybrid_ep::combine_kernel_param_t)",
        "void hybrid_ep::device_sync_kernel<(int)8>(unsigned int *)",
        "void hybrid_ep::scan<(int)1024>(const bool *)",
        "void nccl_ep::internode_ll::combine<(bool)0, (int)7168>(combine_kernel_args_t)",
        "nccl_ep_jit_ht_dispatch",
        "void dispatch_impl<(int)8, (int)7168>(void *)",
        "combine_impl",
        "fullmesh_combine_kernel_reduce",
        "fullmesh_combine_kernel_push",
        "void ipc_rsag_push_param_kernel<__nv_bfloat16, (int)4, (bool)1>(PushOneshotParamData<T1>)",
        "void ipc_tp2_remote_push<__nv_bfloat16, (bool)1>(T1 *)",
        "void push_oneshot_param_kernel<__nv_bfloat16, (int)4, (bool)1, (bool)0>(Data<T1>)",
    ],
    "recurrent": [
        # the convolution of linear attention
        "_causal_conv1d_update_kernel",
        "kernel_flashinfer_packed_kda_decode_cute_tensorptrbf16gmemalign16",
        "kernel_flashkda_fwd_kernel_0",
        "kernel_kimi_k3_kda_decode_kernel_0",
        "GdnDecodeKernel",
        "kernel_cutlass_gdn_decode_bf16state_mtp_ilp4_kernel_tensorptrbf16gmemalign32o129"
        "1612812828",
        "kernel_cutlass_gdn_wide_vec_kernel_t1",
        "gdr_decode_kernel",
        "void ssm_scan_f32<(int)128, (int)16, (int)2>(const float *)",
        "void flashinfer::mamba::checkpointing_ssu_kernel<__nv_bfloat16>(Params)",
    ],
    "memory": [
        # the template is called elementwise, the functor copies
        "void at::native::elementwise_kernel<(int)128, (int)4, void "
        "at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda()>>()",
        "_ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_25bfloat16_copy_kernel_cudaERNS_",
    ],
    "elementwise": [
        # the loader is called LoadWithCast, the functor adds
        "void at::native::unrolled_elementwise_kernel<CUDAFunctor_add<float>, "
        "at::native::memory::LoadWithCast<(int)2>>()",
        "void at::native::vectorized_elementwise_kernel<(int)4, pow_tensor_scalar_kernel_impl<>>()",
        "void at::native::elementwise_kernel<(int)128, (int)2, neg_kernel_cuda()>()",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEE",
        "void fast_hadamard_transform_kernel<fast_hadamard_transform_kernel_traits<(int)128>>()",
    ],
    "reduction": [
        # a norm of a vector is a reduction, and over many tensors part of the optimizer
        "void at::native::reduce_kernel<(int)512, ReduceOp<float, NormTwoOps<float>>>()",
        "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4EL",
    ],
    "optimizer": ["void at::native::multi_tensor_apply_kernel<LpNormFunctor<float>>()"],
    "triton_fused": ["triton_red_fused_add_sum_0"],
    "attention": [
        "_ZN5flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi128ELi64ELi4ELb0ELb0EE",
        "_sparse_mla_fwd",
        "sparse_mla_fwd_kernel",
        "sparse_mqa_fwd_kernel",
        "void flashinfer::sparse_mla_prefill_mg_kernel<(int)2>(Params)",
        "void flashinfer::ComputeLSEFromMDKernel<float>(T1 *, T1 *)",
        "tl_indexer_fwd_kernel",
        "fused_indexer_q_rope_kernel",
        "indexer_topk_kernel",
        "lightning_indexer_sort_kernel",
    ],
    "compiler": [
        "Kernel2",
        "kernel",
    ],
    "quantisation": [
        "void tensorrt_llm::kernels::fp8_blockscale_gemm::scale_1x128_kernel<__nv_bfloat16>(T1 *)"
    ],
    "bookkeeping": ["eagle_step_update_kernel"],
    "rope": [
        "fused_qk_norm_rope_kernel",
        "fused_qk_norm_rope_cache_pts_quant_shuffle",
        "fused_qk_norm_mrope_3d_cache_pts_quant_shuffle",
    ],
    "fused_communication": [
        "void deep_gemm::sm100_fp8_fp4_mega_moe_impl<(unsigned int)8192>(void *, int *)",
        "sm90_nvfp4_mega_moe_impl",
        "Sm100MegaMoEKernel",
        "kernel_cutlass_fc1fc2_kernel_impl_Sm100MegaMoEBf16Kernel_object_at_",
        "multimem_all_gather_matmul_kernel",
    ],
}
NAMES = [(name, category) for category, names in BY_CATEGORY.items() for name in names]


_CODES = {
    "bool": "b",
    "int": "i",
    "long": "l",
    "unsigned int": "j",
    "unsigned long": "m",
    "float": "f",
}
_TOKEN = re.compile(
    r"\((?P<kind>bool|int|long|unsigned int|unsigned long)\)(?P<number>\d+)"
    r"|\((?P<enumeration>[\w:]+)\)(?P<value>\d+)"
    r"|(?P<plain>bool|int|long|float)(?!\w)|(?P<name>(?:\w+::)*[A-Za-z_]\w*)(?P<open><)?|>"
)


def mangled(name: str) -> str | None:
    """Return the name of a function in a namespace as compilers write it; None for any other."""
    found = re.match(r"(?:void )?((?:<unnamed>::|\w+::)+\w+.*)", name)
    if found is None or ">::" in found[1].replace("<unnamed>::", ""):
        return None
    text = _without_parameters(found[1].replace("<unnamed>", "_GLOBAL__N_1"))
    return f"_Z{''.join(map(_mangled_token, _TOKEN.finditer(text)))}EvPT_S1_"


def _without_parameters(text: str) -> str:
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == "(" and not depth:
            return text[:at]
    return text


def _mangled_token(token: re.Match[str]) -> str:
    if token[0] == ">":
        return "EE"
    if token["kind"]:
        return f"L{_CODES[token['kind']]}{token['number']}E"
    if token["enumeration"]:
        return f"L{_nested(token['enumeration'])}{token['value']}E"
    if token["plain"]:
        return _CODES[token["plain"]]
    return f"{_nested(token['name'])[:-1]}I" if token["open"] else _nested(token["name"])


def _nested(name: str) -> str:
    parts = "".join(f"{len(part)}{part}" for part in name.split("::"))
    return f"N{parts}E"


@pytest.mark.parametrize("engine", ENGINES)
def test_names_have_their_category(engine):
    rules = load_rules(engine)
    wrong = {
        name: (found, category)
        for name, category in NAMES
        if (found := rules.classify(name).category) != category
    }
    assert wrong == {}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_mangled_name_has_the_category_of_the_demangled_one(engine):
    rules = load_rules(engine)
    names = [name for name, _ in NAMES] + [rule.example for rule in rules.rules]
    pairs = {name: text for name in names if (text := mangled(name)) is not None}
    assert len(pairs) > 50
    wrong = {
        text: (rules.classify(text).category, rules.classify(name).category)
        for name, text in pairs.items()
        if UNMATCHED != rules.classify(name).category != rules.classify(text).category
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("_ZN6marlin6MarlinILl1125899906909960ELi4ELb1EEEvPK4int4", "marlin::Marlin<(long)1125899"),
        ("_Z23ncclDevKernel_Generic_424ncclDevKernelArgsStorageILm4096EE", "ncclDevKernel_Generic"),
        # the value of an enumeration is no length of the name behind it
        ("_ZN4deep1fILNS_8GemmTypeE2ELj14EEE", "deep::f< GemmType)2, (unsigned int)14>"),
        # what repeats an earlier part is no length either
        ("_ZN2at6nativeILi4EES8_S8_12index_kernelE", "at::native<(int)4>  index_kernel"),
        ("triton_poi_fused_4", "triton_poi_fused_4"),
        ("_Z", ""),
        ("_Z99x", "x"),
    ],
)
def test_mangled_names_are_read_without_types(name, readable):
    assert readable in unmangled(name)


@pytest.mark.parametrize("name", BY_CATEGORY["fused_communication"])
def test_what_is_fused_with_communication_is_in_neither_sum(name):
    assert not is_communication(name)
    assert load_rules("generic").compute_category(name) == "fused_communication"


@pytest.mark.parametrize(
    ("name", "category"),
    [
        # a cache of an indexer is a cache
        ("indexer_k_quant_and_cache_kernel", "kv_cache"),
        # what ends in these letters is no linear attention
        ("void look_kdamp_kernel<float>(float *)", UNMATCHED),
        # a product that feeds a collective of its own is none
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int>>(T1)", "gemm"),
        # a barrier of experts on one GPU is a product of experts
        ("fused_moe_kernel", "moe"),
    ],
)
def test_names_that_are_like_these_stay_what_they_are(name, category):
    assert load_rules("generic").classify(name).category == category
