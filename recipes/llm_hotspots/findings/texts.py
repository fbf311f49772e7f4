"""The rules of this recipe: title, threshold with its source, advice, what to record.

A rule says what a fix could gain; severities follow from that (see `nsys_llm.report.price`).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import LIMITS_PCT
from nsys_llm.report.prices.pricing import BOUND_PCT
from nsys_llm.report.rank_findings import RULES as RANK_RULES
from nsys_llm.report.rules import OF_CLASS, OF_KERNEL, OF_RANK, OURS, Case, Rule, rules_by_id
from nsys_llm.taxonomy.cuda_codes import LARGE_BYTES
from nsys_llm.taxonomy.kernel_levers import LAYERS_SHARE, LEAST_N, load_kernel_levers
from nsys_llm.view.text import format_bytes

from ..tables.bandwidth import LITTLE_HEADROOM_PCT, ROOM_PCT
from .extras import EXTRA_RULES

#: Share of the kernel time above which categories say too little.
UNMATCHED_PCT: Final = 10.0

#: Copies below this size in the mean are small, and from this number on many: what a copy costs is
#: then its launch, whatever it carries.
SMALL_BYTES: Final = 64 << 10
MANY_N: Final = 100
#: Part of the exposed communication from which an operation is named for it.
MAINLY: Final = 0.6
#: Exposed time of a launch below which messages are called small: NCCL's latency is a tenth of it.
SMALL_NS: Final = 50_000

#: Share of the time from which kernels that also communicate are said.
FUSED_PCT: Final = 1.0

#: As many launches as elsewhere, within this share.
SAME_LAUNCHES: Final = 0.01

#: Copies that take less than this share of their time at the best rate seen are slow: single
#: copies of one size differ by less.
LINK_RATE_SHARE: Final = 0.9

#: Call stacks need CPU sampling, and calls this short a threshold of 0 (`nsys profile --help`).
_COPY_CALLS: Final = "--cudabacktrace=memory:0 --sample=process-tree"

GAIN: Final = f"a gain from {min(LIMITS_PCT.values()):g} % of the GPU's span"
_LEVERS: Final = load_kernel_levers()
#: Sentences that several rules share.
#: What copies move, and how fast.
MOVED: Final = "{ops_n} {kinds} copies ({memories}[, {size_bytes}][ at {rate_gb_s}])"
_ALONE: Final = (
    "{exposed_ns} of {span_ns} on device {device_id} of rank {rank} without a kernel: " + MOVED
)
_OVERLAP: Final = (
    "Copy in both directions at once and while the GPU computes: [{pinned_first}]cudaMemcpyAsync, "
    "a stream each way."
)
_FEWER: Final = "Move fewer bytes: keep reused data on the GPU, and copy narrower types."
_LEVER: Final = (
    "{launches_n:launch|launches} of {kernels_n:kernel} take {time_ns} of {span_ns} on GPU "
    "{device_id} of rank {rank}. Most of it: {named}.[ The fix usually leaves {left_pct} of it.]"
)
_EXPOSED: Final = (
    "On GPU {device_id} of rank {rank}, communication runs for {exposed_ns} of {span_ns} without "
    "overlapping computation."
)
_RATE: Final = (
    "{size_bytes} in {mean_ns} (mean of {launches_n} launches): {rate_gb_s} of {peak_gb_s}."
)
_FLAG: Final = (
    "Flag {flag:quoted}: {kernels_n:kernel}, {launches_n:launch|launches}, {total_pct} of kernel "
    "time; most of it in {named}."
)


_remark: Final = partial(Rule, kind=CAPTURE, source=OURS)
_copy_rule: Final = partial(
    Rule,
    scope="copy",
    details=f"{_ALONE}.",
    source=OURS,
    window_shows="the longest stretch of copies without a kernel",
    tables=("memops", "wall"),
    specificity=OF_CLASS,
)
_flag_rule: Final = partial(
    _remark,
    scope="kernel",
    details=_FLAG,
    threshold="any time in kernels with this flag in the rule file",
    tables=("kernels",),
)


def _lever_rule(rule: str, title: str, recommendation: str) -> Rule:
    return Rule(
        rule,
        scope="category",
        title=title,
        details=_LEVER,
        threshold=f"{_LEVERS[rule].condition}; {GAIN}",
        source=_LEVERS[rule].source,
        recommendation=recommendation,
        tables=("rank_kernels", "wall"),
    )


RULES: Final = rules_by_id(
    *RANK_RULES.values(),
    *EXTRA_RULES.values(),
    _remark(
        "unmatched_kernels",
        scope="category",
        title="Kernels that match no rule take {busy_pct} of the kernel time[, "
        "{heaviest:quoted} {heaviest_pct}]",
        details="{kernels_n:kernel name}, {exclusive_ns}.",
        threshold=f"from {UNMATCHED_PCT:g} % of the kernel time",
        recommendation="Treat the other categories as lower bounds. `--engine` chooses another "
        "rule file if the engine was not detected from the kernel names.",
        tables=("categories", "kernels"),
    ),
    _remark(
        "fused_communication",
        scope="device",
        title="Kernels that compute and communicate at once take {share_pct} of the time: their "
        "waiting for other ranks cannot be separated",
        details="{fused_ns} of {span_ns} on GPU {device_id} of rank {rank}. It counts as neither "
        "computation nor communication.",
        threshold=f"from {FUSED_PCT:g} % of the time",
        recommendation="Compare their times across ranks in rank_kernels: the others wait for the "
        "rank with the shortest ones.",
        tables=("wall", "rank_kernels"),
    ),
    _copy_rule(
        "exposed_copies",
        title="{ops_n:{copies}}[, {size_bytes}]: {share_pct} exposed",
        threshold=f"copies without a concurrent kernel that computation could hide; {GAIN}",
        recommendation="{advice}",
    ),
    _copy_rule(
        "exposed_migrations",
        title="Exposed {kinds}: {share_pct}",
        threshold=f"unified memory pages that move without a concurrent kernel; {GAIN}",
        recommendation="{advice}",
    ),
    _copy_rule(
        "device_copies",
        title="{ops_n:copy|copies} inside the device[, {size_bytes}]: {share_pct}",
        threshold=f"DtoD copies without a concurrent kernel; {GAIN}",
        recommendation="Find the code that moves tensors without computing: .clone(), "
        ".contiguous(), torch.cat, KV-cache copies, batch splits. Write results in place, or let "
        "torch.compile fuse them.",
        record=_COPY_CALLS,
        specificity=0,
    ),
    _lever_rule(
        "old_attention",
        title="FlashAttention-2 on Hopper: {share_pct} of the time",
        recommendation="Use FlashAttention-3 (flash_attn_interface; in vLLM and SGLang the "
        "attention backend), or cuDNN's attention through scaled_dot_product_attention.",
    ),
    _lever_rule(
        "unfused_pointwise",
        title="Unfused pointwise kernels",
        recommendation="Fuse them: torch.compile, or fused norm, activation and rotary embedding "
        "kernels. Keep one data type and contiguous tensors to avoid copies and conversions.",
    ),
    _lever_rule(
        "dtype_conversions",
        title="Kernels that only convert data types: {share_pct} of the time",
        recommendation="Keep one data type from layer to layer: weights, norms and rotary "
        "embeddings in the activations' type, or fuse the conversion into a neighboring kernel "
        "(torch.compile). Under torch.autocast, store weights in the low-precision type instead "
        "of casting them in every forward.",
    ),
    _lever_rule(
        "geforce_gemms_without_tensor_cores",
        title="GEMMs without tensor cores: {share_pct} of the time",
        recommendation="Run these GEMMs in FP16, or in BF16 from Ampere on (torch.autocast): that "
        "about halves their time. TF32 gains little on a GPU whose FP32 units are as fast.",
    ),
    _lever_rule(
        "gemms_without_tensor_cores",
        title="GEMMs without tensor cores: {share_pct} of the time",
        recommendation="Run these GEMMs in BF16 or FP16, or let FP32 ones use TF32 "
        "(torch.set_float32_matmul_precision('high')). Small or memory-bound GEMMs gain less than "
        "the bound.",
    ),
    _lever_rule(
        "marlin_on_fp4",
        title="Marlin on a GPU with FP4 tensor cores: {share_pct} of the time",
        recommendation="Use GEMMs with FP4 operands (NVFP4 or MXFP4 from FlashInfer, CUTLASS or "
        "TensorRT-LLM). In vLLM and SGLang, change the quantization backend if the log says that "
        "it fell back to Marlin.",
    ),
    _lever_rule(
        "old_architecture_gemm",
        title="GEMM kernels built for Ampere: {share_pct} of the time",
        recommendation="Use a build for this GPU: newer cuBLAS, CUTLASS 3 or DeepGEMM, and engine "
        "wheels that include its architecture (sm90a). Shapes that are not multiples of 8 also "
        "fall back: pad them.",
    ),
    _lever_rule(
        "old_architecture_gemm_on_blackwell",
        title="GEMM kernels built for Ampere: {share_pct} of the time",
        recommendation="Use a build for this GPU: newer cuBLAS, CUTLASS 4 or DeepGEMM, and engine "
        "wheels that include its architecture (sm100a, sm103a). Shapes that are not multiples of 8 "
        "also fall back: pad them.",
    ),
    _lever_rule(
        "kv_transfers",
        title="KV cache moved by kernels: {share_pct} of the time",
        recommendation="These kernels access host memory directly, so no copy shows up. Move KV "
        "layer by layer while earlier layers compute (layerwise mode), move it in larger chunks, "
        "or recompute short prefixes.",
    ),
    Rule(
        "fusible_kernels",
        scope="device",
        title="{whats} in [{each}][{layers_pct} of the layers] could be one kernel: at most "
        "{share_pct} of the time[, not counting {beyond}]",
        details="They follow each other {sequences_n} times on GPU {device_id} of rank {rank}: "
        "{time_ns}, and {gaps_ns} between them, of {span_ns}. Most of it: {first}, then {last}. "
        "One kernel saves {saved_ns} at most[, not counting {beyond}].",
        threshold=f"a sequence that engines fuse, in at least {100 * LAYERS_SHARE:g} % of the "
        f"layers and {LEAST_N} times in all, and the run has no kernel that does all of it; "
        f"{GAIN}",
        source="the pull request that each names; the upper bound: this project",
        recommendation="Use a kernel that does all of it (FlashInfer, TensorRT-LLM, "
        "torch.compile). [This engine has no flag for it: {source}.]",
        cases={
            "flag": Case(
                title="{whats} in [{each}][{layers_pct} of the layers] could be one kernel "
                "({flag}): at most {share_pct} of the time[, not counting {beyond}]",
                recommendation="Set {flag:quoted}[ ({since})] and measure it: {slower}. Source of "
                "the flag: {source}.",
            )
        },
        tables=("fusions", "wall"),
        specificity=OF_KERNEL,
    ),
    Rule(
        "exposed_communication",
        source=OURS,
        scope="device",
        title="{what}: {share_pct} of the time, waiting included",
        details=f"{_EXPOSED} This includes waiting for other ranks.",
        threshold=f"exposed communication, except between pipeline stages; among ranks that wait "
        f"for each other, the rank with the least; an operation with {100 * MAINLY:g} % of it is "
        f"named: {GAIN}",
        recommendation="[{advice} ]tail_stats splits it into waiting and transfer.",
        cases={
            "waits": Case(
                details=f"{_EXPOSED} Rank {{waiting_rank}} has {{waiting_rank_ns}} of exposed "
                "communication. It spends the difference waiting for other ranks."
            )
        },
        window_shows="the longest stretch of it",
        tables=("exposed_communication", "overlap", "wall"),
        specificity=OF_RANK,
    ),
    Rule(
        "bandwidth_room",
        source=OURS,
        scope="kernel",
        title="{pattern:quoted} is far below peak memory bandwidth: {efficiency_pct}",
        details=f"{_RATE} On rank {{rank}} its launches take {{exclusive_ns}}; at {{headroom_pct}} "
        "of the bandwidth they would take {left_pct} less.",
        threshold=f"below {ROOM_PCT:g} % of the memory's peak bandwidth; the gain is the time "
        f"saved at {LITTLE_HEADROOM_PCT:g} %: {GAIN}",
        recommendation="Try another kernel or other tuning (split K, vector width, fewer waves), "
        "fuse small GEMMs into one, and check its launch configuration.",
        tables=("bandwidth", "rank_kernels", "wall"),
    ),
    _copy_rule(
        "link_bound",
        title="Bound by {which}: [{link_bytes} in ]{exposed_ns}",
        details="{exposed_ns} of {span_ns} on device {device_id} of rank {rank}: {by_kind}.",
        threshold=f"copies between host and device, or between two devices, without a concurrent "
        f"kernel take {BOUND_PCT:g} % of the span, and more time than computation; {GAIN}",
        recommendation=f"{_OVERLAP} {_FEWER}",
        cases={
            "alone": Case(
                recommendation=f"{_FEWER} {{beside_ns}} of computation and of copies "
                "the other way could run beside them[; pinned host memory reaches "
                "{pinned_gb_s}]."
            )
        },
        specificity=OF_KERNEL,
    ),
    _copy_rule(
        "slow_copies",
        title="{kind} copies at {union_gb_s} on rank {rank}",
        details=f"{_ALONE}. The fastest {{kind}} copy of the run: {{fastest_gb_s}}.",
        threshold="copies other than pageable ones, with a median size of at least 1 MiB, that "
        f"would take less than {100.0 * LINK_RATE_SHARE:g} % of their time at the rate of the "
        f"fastest one in their direction; the gain is the difference: {GAIN}",
        source="the fastest single copy of at least 1 MiB in that direction in the run; profiles "
        "record neither generation nor width of the link",
        recommendation="Check what shares the link: copies in the other direction, other GPUs "
        "behind the same switch. Then place process and buffers on the GPU's NUMA node "
        "(numactl), and compare the link's generation and width with the maximum (nvidia-smi "
        "-q -d PCIE).",
        specificity=OF_RANK,
    ),
    _copy_rule(
        "pageable_copies",
        title="{ops_n:copy|copies} of pageable memory[, {size_bytes}]: {share_pct}",
        details=f"{_ALONE}.[ Pinned memory reaches {{pinned_gb_s}}.]",
        threshold=f"copies with a mean size of at least {format_bytes(LARGE_BYTES)}, without a "
        f"concurrent kernel; pinned memory copies at `memops.pinned_gb_s`; {GAIN}",
        source="the run's fastest pinned copy in the same direction; otherwise the GPU's PCIe",
        recommendation="Allocate the host buffer as pinned memory (torch: pin_memory=True, and "
        "non_blocking=True on the copy), once and outside the loop.",
        record=_COPY_CALLS,
        specificity=OF_RANK,
    ),
    _flag_rule(
        "determinism_atomics",
        title="Some kernels may give different last bits from run to run",
        recommendation="Sums with atomic additions have no fixed order. If two runs must agree, "
        "use the deterministic variant (torch.use_deterministic_algorithms(True); "
        "FlashAttention's deterministic=True), and expect it to be slower.",
    ),
    _flag_rule(
        "determinism_split_k",
        title="Some kernels split the sum along K, so results follow the shape",
        recommendation="One shape repeats bit for bit with cuBLASLt; another batch size may split "
        "differently. For results that do not depend on the batch, use batch-invariant kernels "
        "(VLLM_BATCH_INVARIANT=1 in vLLM, --enable-deterministic-inference in SGLang).",
    ),
    _flag_rule(
        "determinism_cascade_merge",
        title="Some kernels merge partial attention, so results follow batch and prefix",
        recommendation="Results at batch sizes 1 and 16 may differ in the last bits. To rule this "
        "out while tracking down a difference, set disable_cascade_attn=True in vLLM, or a fixed "
        "number of KV splits elsewhere.",
    ),
)
