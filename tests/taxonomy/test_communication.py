"""Communication is the same for every engine, so a rank can tell it before the engine is known."""

from __future__ import annotations

import pytest

from nsys_llm.taxonomy.categories import ENGINES, load_rules
from nsys_llm.taxonomy.communication import COMMUNICATION, is_communication

EXAMPLES = sorted({rule.example for engine in ENGINES for rule in load_rules(engine).rules})


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_agrees_on_the_examples_of_all_rules(engine):
    rules = load_rules(engine)
    communication = {name for name in EXAMPLES if rules.classify(name).category == COMMUNICATION}
    assert communication == {name for name in EXAMPLES if is_communication(name)}
    assert len(communication) > 10


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(void*)",
        "void nvshmemi_transfer_kernel()",
    ],
)
def test_collectives_are_known_by_more_than_one_prefix(name):
    assert is_communication(name)


@pytest.mark.parametrize(
    "name", ["void at::native::reduce_kernel<512, 1>(int)", "nvjet_tst_192x192", "all", ""]
)
def test_reductions_on_one_gpu_are_no_communication(name):
    assert not is_communication(name)
