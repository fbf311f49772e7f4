"""Operations of communication kernels, by names as they stand in real reports."""

import pytest

from nsys_llm.taxonomy.categories import COMMUNICATION, ENGINES, load_rules
from nsys_llm.taxonomy.communication import OTHER, is_communication, members_n, operation_of

ARGUMENTS = "(ncclDevKernelArgsStorage<(unsigned long)4096>)"
NAMES = {
    f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{ARGUMENTS}": "all_reduce",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": "all_reduce",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)4>(vllm::RankData *)": "all_reduce",
    "void flashinfer::trtllm_allreduce_fusion::"
    "allreduce_fusion_kernel_oneshot_lamport<(int)8>(T2)": "all_reduce",
    "void (anonymous namespace)::multimem_one_shot_reduce_kernel<float>(T1 *)": "all_reduce",
    f"ncclDevKernel_AllGather_RING_LL{ARGUMENTS}": "all_gather",
    f"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL{ARGUMENTS}": "reduce_scatter",
    "ncclSymkDevKernel_ReduceScatter_LL_sum_f32(ncclSymkDevWorkArgs4K)": "reduce_scatter",
    f"ncclDevKernel_Reduce_Sum_f32_RING_LL{ARGUMENTS}": "reduce",
    f"ncclDevKernel_Broadcast_RING_LL{ARGUMENTS}": "broadcast",
    f"ncclDevKernel_SendRecv{ARGUMENTS}": "send_recv",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)": "send_recv",
    "void tensorrt_llm::kernels::moeAllToAllKernel<(bool)0>(int, int, int)": "all_to_all",
    "void deep_ep::internode_ll::dispatch<(bool)1, (int)3>(void *, float *)": "dispatch",
    "void deep_ep::intranode::combine<__nv_bfloat16, (int)8>(T1 *)": "combine",
    f"ncclDevKernel_Generic_4{ARGUMENTS}": OTHER,
    "nvshmemi_transfer_rma": OTHER,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_operation_is_told_by_the_name(name):
    assert operation_of(name) == NAMES[name]
    assert is_communication(name)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)4>(vllm::RankData *)", 4),
        ("void cross_device_reduce_2stage<__half, 8>(RankData *)", 8),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
            "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, "
            "(int)2, (bool)1>(flashinfer::trtllm_allreduce_fusion::AllReduceFusionParams<T2>)",
            2,
        ),
        ("void deep_ep::intranode::dispatch<(int)8, (int)768>(int4 *)", 8),
        ("void deep_ep::intranode::combine<__nv_bfloat16, (int)8>(T1 *)", 8),
        ("void deep_ep::internode::dispatch<(bool)1, (int)4, (int)7168>(void *)", 0),
        ("void flashinfer::allreduce_fusion_kernel_twoshot_sync<int>()", 0),
        (f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{ARGUMENTS}", 0),
    ],
)
def test_some_names_tell_for_how_many_ranks_they_are(name, n):
    assert members_n(name) == n


EXAMPLES = sorted({rule.example for engine in ENGINES for rule in load_rules(engine).rules})


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_agrees_on_the_examples_of_all_rules(engine):
    rules = load_rules(engine)
    communication = {name for name in EXAMPLES if rules.classify(name).category == COMMUNICATION}
    assert communication == {name for name in EXAMPLES if is_communication(name)}
    assert len(communication) > 10


@pytest.mark.parametrize(
    "name", ["void at::native::reduce_kernel<512, 1>(int)", "nvjet_tst_192x192", "all", ""]
)
def test_reductions_on_one_gpu_are_no_communication(name):
    assert not is_communication(name)
