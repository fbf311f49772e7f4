"""The kernels and steps of an LLM server on four GPUs, for two workloads.

Names and proportions are those of a vLLM-like server with tensor parallelism; the durations are
invented. The workloads differ as a batch of 1 and a batch of 16 do: as many launches, another
attention path, other GEMM variants, and a cache write that takes 5.15 times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nsys_llm.testing.demo_model import Dim3, KernelKind, RankSet

LAYERS: Final = 16

_FUSED_NORM: Final = (
    "std::enable_if<(T2>(0))&&vllm::_typeConvert<T1>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>"
    "(T1 *, long, T1 *, const T1 *, float, int, int)"
)
_ROTARY: Final = (
    "void vllm::rotary_embedding_kernel<c10::BFloat16, (bool)1>"
    "(const long *, T1 *, T1 *, const T1 *, int, long, long, long, int, int, int)"
)
_CACHE_WRITE: Final = (
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, "
    "(vllm::Fp8KVCacheDataType)0>(const T1 *, const T1 *, T2 *, T2 *, const long *, "
    "long, long, long, long, long, int, int, int, const float *, const float *)"
)
_GATED_SILU: Final = (
    "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, (bool)1>"
    "(T1 *, const T1 *, int)"
)
_ATTENTION_PLAN: Final = "void flash::prepare_varlen_num_blocks_kernel<(int)1, (bool)1>(int, int)"
_ATTENTION: Final = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
    "flash::CollectiveMainloopFwdSm90<(int)2>, flash::CollectiveEpilogueFwd<>>>>(T1::Params)"
)
_ATTENTION_COMBINE: Final = (
    "void cutlass::device_kernel<flash::FlashAttnFwdCombine<(int)128, (int)8>>(T1::Params)"
)
_ATTENTION_MERGE: Final = (
    "void vllm::merge_attn_states_kernel<__nv_bfloat16, (unsigned int)128>"
    "(T1 *, float *, const T1 *, const float *, const T1 *, const float *, unsigned int)"
)
_REDUCE_SMALL: Final = (
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)4>"
    "(vllm::RankData *, vllm::RankSignals, vllm::Signal *, T1 *, int, int)"
)
_NCCL_ARGUMENTS: Final = "(ncclDevKernelArgsStorage<(unsigned long)4096>)"
_SAMPLING: Final = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::BinaryFunctor<float>>(int)",
    "triton_poi_fused_div_penalties_0",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<(int)8, float>(T2 *, int)",
    "_topk_topp_kernel",
    "triton_red_fused_cumsum_1",
    "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float>>(T3)",
    "triton_poi_fused_index_put_2",
)

#: A kernel that matches no rule of any engine.
UNKNOWN_KERNEL: Final = "acme_step_tap_v2(const float *, unsigned long long *)"
#: A kernel of which some launches take far longer in one and the same configuration.
JITTERY_KERNEL: Final = _FUSED_NORM


@dataclass(frozen=True)
class Gemms:
    """The matrix products of a layer: name, typical duration in ns, and grid."""

    qkv: tuple[str, int, Dim3]
    out: tuple[str, int, Dim3]
    gate_up: tuple[str, int, Dim3]
    down: tuple[str, int, Dim3]


@dataclass(frozen=True)
class Workload:
    """What one server run computes.

    Attributes:
        lm_head: Name and duration of the last product.
        elementwise_pct: Duration of norms and activations, in percent of those of a batch of 1.
        cache_write_pct: That of the cache write.
        cascade: Whether attention computes the shared prefix apart and merges.
        device_copies: Device-to-device copies of a run: how many, and bytes each.
    """

    batch: int
    prompt_tokens: int
    prefill: Gemms
    decode: Gemms
    lm_head: tuple[str, int]
    elementwise_pct: int
    cache_write_pct: int
    cascade: bool
    device_copies: tuple[int, int]
    memsets: int


BATCH_1: Final = Workload(
    batch=1,
    prompt_tokens=512,
    prefill=Gemms(
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", 96_000, (132, 1, 1)),
        ("nvjet_tst_128x128_64x6_2x1_v_bz_TNN", 71_000, (132, 1, 1)),
        ("nvjet_tst_256x152_64x4_1x2_h_bz_coopA_TNT", 372_000, (132, 1, 1)),
        ("nvjet_tst_128x160_64x5_2x1_v_bz_TNN", 188_000, (132, 1, 1)),
    ),
    decode=Gemms(
        ("nvjet_tst_128x8_64x12_2x1_v_bz_TNN", 13_600, (132, 1, 1)),
        ("nvjet_tst_64x8_64x16_1x4_h_bz_splitK_TNT", 11_200, (64, 1, 4)),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 100_000, (132, 1, 1)),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 50_000, (128, 1, 1)),
    ),
    lm_head=("nvjet_tst_256x8_64x6_2x1_v_bz_TNT", 158_000),
    elementwise_pct=100,
    cache_write_pct=100,
    cascade=False,
    device_copies=(29, 2_793_472),
    memsets=41,
)

BATCH_16: Final = Workload(
    batch=16,
    prompt_tokens=1024,
    prefill=Gemms(
        ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT", 186_000, (132, 1, 1)),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", 139_000, (132, 1, 1)),
        ("nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT", 724_000, (132, 1, 1)),
        ("nvjet_tst_168x128_64x5_1x2_h_bz_TNN", 366_000, (132, 1, 1)),
    ),
    decode=Gemms(
        ("nvjet_tst_128x16_64x10_2x1_v_bz_TNN", 16_900, (132, 1, 1)),
        ("nvjet_tst_64x16_64x14_2x4_h_bz_splitK_TNT", 14_700, (64, 1, 4)),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 104_000, (132, 1, 1)),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 52_000, (128, 1, 1)),
    ),
    lm_head=("nvjet_tst_256x16_64x5_2x1_v_bz_TNT", 171_000),
    elementwise_pct=150,
    cache_write_pct=515,
    cascade=True,
    device_copies=(53, 3_075_584),
    memsets=51,
)


def _attention(workload: Workload, *, prefill: bool) -> list[KernelKind]:
    heads = (workload.batch, 8, 1)
    if workload.cascade:
        prefix_ns, suffix_ns = (48_000, 18_000) if prefill else (14_100, 8_600)
        return [
            KernelKind(_ATTENTION, prefix_ns, (1, 8, 1), (384, 1, 1), 196_608),
            KernelKind(_ATTENTION, suffix_ns, (workload.batch, 8, 4), (384, 1, 1), 196_608),
            KernelKind(_ATTENTION_MERGE, 2_900, heads),
        ]
    return [
        KernelKind(_ATTENTION_PLAN, 1_700, (1, 1, 1), (992, 1, 1)),
        KernelKind(_ATTENTION, 34_000 if prefill else 11_300, (1, 8, 8), (384, 1, 1), 196_608),
        KernelKind(_ATTENTION_COMBINE, 3_300, heads, (256, 1, 1)),
    ]


def _layer(workload: Workload, *, prefill: bool) -> list[KernelKind]:
    gemms = workload.prefill if prefill else workload.decode
    rows = workload.prompt_tokens if prefill else workload.batch
    scale_pct = workload.elementwise_pct * (4 if prefill else 1)

    def product(gemm: tuple[str, int, Dim3]) -> KernelKind:
        return KernelKind(*gemm, (384, 1, 1), 212_992)

    def elementwise(name: str, duration_ns: int) -> KernelKind:
        return KernelKind(name, duration_ns * scale_pct // 100, (rows, 1, 1), (1024, 1, 1))

    reduce = KernelKind(_REDUCE_SMALL, 7_600, (36, 1, 1), (512, 1, 1), collective=True)
    if prefill:
        name = f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{_NCCL_ARGUMENTS}"
        reduce = KernelKind(name, 58_000, (24, 1, 1), (544, 1, 1), collective=True)
    norm = KernelKind(
        _FUSED_NORM,
        2_400 * scale_pct // 100,
        (rows, 1, 1),
        (1024, 1, 1),
        outlier_rate=0.0 if prefill else 0.02,
        outlier_factor=4.0,
    )
    cache_write_ns = (4_000 if prefill else 3_072) * workload.cache_write_pct // 100
    return [
        norm,
        product(gemms.qkv),
        elementwise(_ROTARY, 2_000),
        KernelKind(_CACHE_WRITE, cache_write_ns, (rows, 1, 1), (512, 1, 1)),
        *_attention(workload, prefill=prefill),
        product(gemms.out),
        reduce,
        norm,
        product(gemms.gate_up),
        elementwise(_GATED_SILU, 2_100),
        product(gemms.down),
        reduce,
    ]


def forward(workload: Workload, *, prefill: bool) -> list[KernelKind]:
    """Return the kernels of one pass through the model, in order."""
    head, head_ns = workload.lm_head
    rows = workload.prompt_tokens if prefill else workload.batch
    return [
        KernelKind("triton_poi_fused_embedding_0", 2_300, (rows, 1, 1)),
        KernelKind("triton_red_fused__to_copy_mean_mul_rsqrt_1", 2_600, (rows, 1, 1)),
        *(kind for _ in range(LAYERS) for kind in _layer(workload, prefill=prefill)),
        KernelKind(head, head_ns, (132, 1, 1), (384, 1, 1), 212_992),
    ]


def gather() -> KernelKind:
    """Return the collective that brings the ranks' logits together."""
    name = f"ncclDevKernel_AllGather_RING_LL{_NCCL_ARGUMENTS}"
    return KernelKind(name, 21_000, (8, 1, 1), (544, 1, 1), collective=True)


def sampling(workload: Workload) -> list[KernelKind]:
    """Return the small kernels that pick the next tokens."""
    return [KernelKind(name, 1_900, (workload.batch, 1, 1), (512, 1, 1)) for name in _SAMPLING]


#: Size of the synchronous copies; no other copy has it.
SYNC_COPY_BYTES: Final = 2_097_152


def has_sync_copy(step: int) -> bool:
    """Return whether the host copies from pageable memory in this step and waits for it."""
    return step % 10 == 5


def has_late_sync(step: int) -> bool:
    """Return whether the last synchronization of this step returns late."""
    return step % 8 == 7


def run_step(ranks: RankSet, workload: Workload, step: int, steps: int) -> None:
    """Run one step of the server: schedule, forward pass, sampling.

    Step 0 is the prefill. Every third step launches its kernels one by one, the others a graph.
    """
    prefill = step == 0
    with ranks.range(f"engine_step, seq = {step}"):
        with ranks.range("schedule"):
            _schedule(ranks, step, steps)
        rows = workload.prompt_tokens if prefill else workload.batch
        counts = (1, rows, 0, 0) if prefill else (0, 0, workload.batch, rows)
        text = "execute_context_{}({})_generation_{}({})".format(*counts)
        with ranks.range("prefill" if prefill else "decode"), ranks.range(text):
            ranks.copy("HtoD", 8 * rows, 1_400)
            for _ in range(_due(workload.memsets, step, steps)):
                ranks.copy("memset", 4096, 1_100)
            _forward(ranks, forward(workload, prefill=prefill), eager=step % 3 == 0)
            count, size_bytes = workload.device_copies
            for _ in range(_due(count, step, steps)):
                ranks.copy("DtoD", size_bytes, 3_200)
        with ranks.range("sample"):
            _sample(ranks, workload, step)


def _due(total: int, step: int, steps: int) -> int:
    return total * (step + 1) // steps - total * step // steps


def _schedule(ranks: RankSet, step: int, steps: int) -> None:
    ranks.work_on_host(290_000)
    if has_sync_copy(step):
        ranks.copy("HtoD", SYNC_COPY_BYTES, 46_000, staging_ns=430_000)
    if step == steps // 2:
        ranks.call("cudaMalloc_v3020", 810_000)


def _forward(ranks: RankSet, kinds: Sequence[KernelKind], *, eager: bool) -> None:
    if not eager:
        ranks.launch_graph(kinds, graph_exec_id=3)
        return
    for kind in kinds:
        if kind.name.startswith("nccl"):
            with ranks.range("ncclAllReduce", domain="NCCL"):
                ranks.launch(kind)
        else:
            ranks.launch(kind)


def _sample(ranks: RankSet, workload: Workload, step: int) -> None:
    with ranks.range("ncclAllGather", domain="NCCL"):
        ranks.launch(gather())
    ranks.launch(KernelKind(UNKNOWN_KERNEL, 1_900, (1, 1, 1)))
    ranks.synchronize(wake_up_ns=14_000)
    if step % 6 == 3:
        for _ in range(24):
            ranks.call("cudaMallocAsync_v11020", 1_900)
            ranks.call("cudaFreeAsync_v11020", 1_500)
    # The stream is empty here, so each of these small kernels waits for its launch.
    for kind in sampling(workload):
        ranks.launch(kind)
    ranks.copy("DtoH", 8 * workload.batch, 1_500)
    ranks.synchronize(wake_up_ns=900_000 if has_late_sync(step) else 14_000)
