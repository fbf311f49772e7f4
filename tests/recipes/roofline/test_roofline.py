"""Steps, products and categories against peaks: hand-counted models, planted steps, properties."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from quick_run import quick, quick_part
from results import rows
from trace_builder import TraceBuilder

from nsys_llm.core.errors import UsageError
from nsys_llm.facts.roofline.gemms import shape_of
from nsys_llm.manifest.model_config import _Unknown as UnknownKey
from nsys_llm.manifest.model_config import model_of, read_model
from nsys_llm.recipes.roofline.analysis import ANALYSIS
from nsys_llm.recipes.roofline.findings.answer import kernels_bound
from nsys_llm.recipes.roofline.tables.kernels import element_bytes, gemm_work, operand_type
from nsys_llm.recipes.roofline.tables.step_work import (
    Batch,
    ModelLayout,
    distinct_experts,
    parameters,
    read_bytes,
    step_flops,
    stored_bytes,
    training_flops,
)
from nsys_llm.taxonomy.gpus import _peaks, gpu_peak

#: HBM3 of an H100: 5,120 bits at 2,619 MHz, twice a cycle.
H100_BYTES_S = 5_120 // 8 * 2_619_000_000 * 2
LLAMA_3_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "torch_dtype": "bfloat16", "rope_theta": 500000.0,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 32000, "torch_dtype": "bfloat16", "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip
QWEN_AWQ = {
    "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
    "torch_dtype": "float16", "use_sliding_window": False, "sliding_window": 131072,
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128},
}  # fmt: skip
#: 24 layers over 8 GPUs: the numbers of the planted steps are counted by hand below.
PLANTED = {**LLAMA_3_8B, "num_hidden_layers": 24, "vocab_size": 256000}
OF_PLANTED = ("--tp", "8", "--peak-bandwidth", str(H100_BYTES_S / 1e9))


def decoding(requests, keys):
    """Return a step in which each of some requests generates a token."""
    one = [np.array([value], dtype=float) for value in (requests, requests, keys, keys)]
    return Batch(*one)


def test_a_dense_model_with_grouped_queries_by_hand():
    model = model_of(LLAMA_3_8B)
    # A layer: queries and output 2 x 4096 x 4096, keys and values 2 x 4096 x 1024, 3 x 4096 x 14336
    layer = 33_554_432 + 8_388_608 + 176_160_768
    assert parameters(model) == 32 * layer + 128_256 * 4096 == 7_504_658_432
    batch = decoding(1, 1001)
    # 1,001 keys and values of 32 layers are read, one is written: 2 x 2 x 32 x 1024 bytes each.
    expected = 2 * 7_504_658_432 + 131_072 * 1002
    assert read_bytes(model, ModelLayout(), batch, 2.0)[0] == expected
    assert round(2 * 7_504_658_432 / 3.35e12 * 1e3, 2) == 4.48
    assert step_flops(model, ModelLayout(), batch)[0] == 2 * 7_504_658_432 + 4 * 32 * 4096 * 1001
    # 16 GPUs: keys and values have 8 heads, so each is on two GPUs.
    part = 32 * (33_554_432 / 16 + 8_388_608 / 8 + 176_160_768 / 16) + 128_256 * 4096 / 16
    expected = 2 * part + 131_072 * 1002 / 8
    assert read_bytes(model, ModelLayout(16), batch, 2.0)[0] == expected


def test_a_mixture_of_experts_by_hand():
    model = model_of(MIXTRAL)
    attention, expert, router = 32 * 41_943_040, 32 * 176_160_768, 32 * 32_768
    head = 32_000 * 4096
    every = attention + 8 * expert + router + head
    assert parameters(model) == every
    assert round((every + head) / 1e9, 2) == 46.70  # as published, with the table of embeddings
    active = attention + 2 * expert + router + head
    assert round((active + head) / 1e9, 2) == 12.88
    batch = decoding(1, 0)
    assert step_flops(model, ModelLayout(), batch)[0] == 2 * active
    assert read_bytes(model, ModelLayout(), batch, 2.0)[0] == pytest.approx(2 * active + 131_072)
    large = model_of({**MIXTRAL, "num_local_experts": 256, "num_experts_per_tok": 8})
    reached = distinct_experts(large, np.array([1.0, 8.0, 64.0]))
    assert [round(n, 1) for n in reached.tolist()] == [8.0, 57.4, 222.4]
    # Spread by experts over 8 GPUs, each with a batch of its own: one of 8 tokens' experts each.
    ep = step_flops(model, ModelLayout(1, 8), batch)[0]
    assert ep == 2 * active


def test_a_quantized_model_by_hand():
    model = model_of(QWEN_AWQ)
    layer = 2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18944
    head = 152_064 * 3584
    # 4 bits and 2 bytes of scale each 128 weights; the head stays in 16 bits.
    expected = 28 * layer * (0.5 + 2 / 128) + 2 * head
    assert stored_bytes(model, ModelLayout()) == expected == 4_454_596_608
    assert model.compute == "fp16"
    both = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}
    for change, compute in (({}, "fp8"), ({"type": "int"}, "int8")):
        group = {**both, "weights": {**both["weights"], **change}}
        model = model_of({**LLAMA_3_8B, **grouped({"group_0": group})})
        assert (model.compute, model.weight_bytes) == (compute, 1.0)
    alone = {"weights": {"num_bits": 4, "group_size": 128, "type": "int"}}
    model = model_of({**LLAMA_3_8B, **grouped({"group_0": alone})})
    assert (model.compute, model.weight_bytes) == ("bf16", 0.5 + 2 / 128)
    fp8 = model_of({**LLAMA_3_8B, "quantization_config": {"quant_method": "fp8"}})
    assert (fp8.compute, fp8.weight_bytes, fp8.kv_bytes) == ("fp8", 1.0, 2.0)


@pytest.mark.parametrize(
    ("names", "left_n"),
    [
        # Of 32 layers those of queries and output, keys and values, the feed-forward network.
        (["model.layers.0.mlp.gate_proj"], (0, 0, 1)),
        (["model.layers.0.self_attn.q_proj", "lm_head"], (1, 0, 0)),
        (["model.layers.31.self_attn", "model.layers.32.self_attn"], (2, 2, 0)),
        (["self_attn", "model.norm", "model.embed_tokens"], (64, 64, 0)),
        (["model.layers.4", "gate"], (2, 2, 3)),
        (["qkv_proj", "re:.*layers[.][01][.]mlp[.]down_proj$", "re:.*lm_head"], (32, 64, 2)),
    ],
)
@pytest.mark.parametrize("method", ["fp8", "compressed-tensors"])
def test_modules_that_are_not_quantized_are_counted_by_layer(names, left_n, method):
    weights = {"num_bits": 8, "type": "float"}
    key = "ignore" if method == "compressed-tensors" else "modules_to_not_convert"
    groups = {"a": {"weights": weights, "input_activations": {"num_bits": 8}}}
    content = quantized(quant_method=method, config_groups=groups, **{key: names})
    model = model_of({**LLAMA_3_8B, **content})
    sizes, every = (4096 * 4096, 4096 * 1024, 4096 * 14336), (2 * 32, 2 * 32, 3 * 32)
    expected = 2 * 128_256 * 4096
    expected += sum(size * (n + left) for size, n, left in zip(sizes, every, left_n, strict=True))
    assert stored_bytes(model, ModelLayout()) == pytest.approx(expected, rel=1e-12)


def test_of_a_mixture_the_router_is_no_part_of_an_expert():
    def stored(*names):
        content = quantized(quant_method="fp8", modules_to_not_convert=[*names])
        return stored_bytes(model_of({**MIXTRAL, **content}), ModelLayout())

    expert = 4096 * 14336
    assert stored("block_sparse_moe.gate") == stored()
    assert stored("model.layers.3.block_sparse_moe.experts") - stored() == 8 * 3 * expert
    with pytest.raises(UnknownKey, match="w1"):
        stored("model.layers.3.block_sparse_moe.experts.5.w1")


@pytest.mark.parametrize(
    "content",
    [
        {**QWEN_AWQ, "use_mrope": False},
        {
            "model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384, "num_hidden_layers": 32,
            "num_attention_heads": 32, "vocab_size": 50272, "torch_dtype": "float16",
            "word_embed_proj_dim": 4096, "do_layer_norm_before": True, "layerdrop": 0.0,
            "init_std": 0.02, "_remove_final_layer_norm": False, "prefix": "</s>",
        },
        {
            "model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 51200,
            "torch_dtype": "float16", "qk_layernorm": False, "embd_pdrop": 0.0,
        },
    ],
    ids=["qwen2", "opt", "phi"],
)  # fmt: skip
def test_what_is_off_or_as_usual_changes_nothing(content):
    assert model_of(content).reason is None
    with pytest.raises(UnknownKey, match="a_new_kind"):
        model_of({**content, "a_new_kind": True})
    if "word_embed_proj_dim" in content:
        with pytest.raises(UnknownKey, match="word_embed_proj_dim"):
            model_of({**content, "word_embed_proj_dim": 512})


def test_training_is_three_times_forward():
    model = model_of(LLAMA_3_8B)
    tokens, length = 8192, 4096
    pairs = tokens * (length + 1) / 2
    expected = 3 * (2 * 7_504_658_432 * tokens + 4 * 32 * 4096 * pairs)
    assert training_flops(model, ModelLayout(), tokens, length) == expected
    assert training_flops(model, ModelLayout(), tokens, None) == 3 * 2 * 7_504_658_432 * tokens


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"kv_lora_rank": 512}, "kv_lora_rank"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types"),
        ({"model_type": "unheard_of"}, "model_type unheard_of"),
        ({"quantization_config": {"quant_method": "quip"}}, "quant_method quip"),
        ({"torch_dtype": "int3"}, "torch_dtype int3"),
    ],
)
def test_a_key_that_is_not_known_is_named(tmp_path, change, key):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_3_8B, **change}))
    assert read_model(str(path)).reason == key
    tables = quick("roofline", planted(tmp_path, 3), "--model", str(path), *OF_PLANTED)
    assert set(tables["step_roofline"]["reason"]) == {key}
    assert tables["step_roofline"][["flops", "mfu_pct", "roofline_ns"]].isna().all(axis=None)


@pytest.mark.parametrize("content", [b"[]", b"{", b"", b"\xff\xfe", b"[" * 100_000, b"7" * 5_000])
def test_what_is_no_config_is_an_error(tmp_path, content):
    path = tmp_path / "config.json"
    with pytest.raises(UsageError, match=r"config\.json: cannot be read"):
        read_model(str(path))
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"config\.json: (cannot be read|is no JSON object)"):
        read_model(str(path))


def quantized(**content):
    return {"quantization_config": content}


def grouped(group):
    return quantized(quant_method="compressed-tensors", config_groups=group)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        *(({"hidden_size": value}, "hidden_size") for value in (None, 0, 4096.0, "4096", 10**30)),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"n_shared_experts": "2"}, "n_shared_experts"),
        ({"first_k_dense_replace": 33}, "first_k_dense_replace"),
        ({"decoder_sparse_step": -1}, "decoder_sparse_step"),
        ({"mlp_only_layers": 5}, "mlp_only_layers"),
        ({"layer_types": {}}, "layer_types"),
        ({"quantization_config": "awq"}, "quantization_config"),
        (quantized(quant_method="awq", bits=4, group_size="128"), "group_size"),
        (quantized(quant_method="fp8", modules_to_not_convert="all"), "modules_to_not_convert"),
        (quantized(quant_method="fp8", kv_cache_scheme=8), "kv_cache_scheme"),
        (grouped([]), "config_groups"),
        (grouped({"a": {"weights": 8}}), "weights"),
    ],
)
def test_a_value_that_cannot_be_is_an_error_that_names_its_key(change, key):
    with pytest.raises(UsageError, match=f"'{key}' must be "):
        model_of({**MIXTRAL, **change})


H100 = "NVIDIA H100 80GB HBM3"
OF_8 = "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk5026sqsq8sqsk5026)"


def planted(folder, steps_n=100, cost_ns=793_700, busy_ns=750_985, gpu=H100, name=OF_8):
    """Write steps of 8 requests with 5,026 keys: each costs and is busy as long as it is said."""
    trace = TraceBuilder(gpu_name=gpu).process(pid=1, name="server")
    trace.kernel("load", start_ns=2_000, duration_ns=1_000, launch=(500, 1_000))
    clock = 10_000
    for _ in range(steps_n):
        trace.nvtx(name, clock, clock + 20_000)
        identity = trace.reserve_correlation_ids(1)
        trace.api("cudaLaunchKernel_v7000", start_ns=clock + 1_000, end_ns=clock + 9_000,
                  correlation_id=identity)  # fmt: skip
        trace.kernel("sm90_xmma_gemm_bf16", start_ns=clock + cost_ns - busy_ns,
                     duration_ns=busy_ns, correlation_id=identity)  # fmt: skip
        clock += cost_ns + 53_323
    (folder / "rank0.sqlite").unlink(missing_ok=True)
    return trace.write_sqlite(folder / "rank0.sqlite")


def config(folder, content=PLANTED):
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_the_planted_step_is_as_far_from_its_roofline_as_planted(tmp_path):
    tables = quick("roofline", planted(tmp_path), "--model", config(tmp_path), *OF_PLANTED)
    steps = tables["step_roofline"]
    row = steps[steps["step"] == 93].iloc[0]
    # 2 x (24 x 218,103,808 + 256,000 x 4096) / 8 + 2 x 2 x 24 x 1024 x (5,026 + 8) / 8 bytes;
    # 2 x 8 x 6,283,067,392 / 8 + 4 x 24 x 4096 x 5,026 / 8 FLOPs.
    assert row["bytes"] == 1_632_624_640
    assert row["flops"] == 12_813_172_736
    assert row["cost_ns"] == 793_700
    assert (row["roofline_ns"], row["lost_ns"]) == (487_013, 306_687)
    assert (round(row["mbu_pct"], 2), round(row["mfu_pct"], 2)) == (61.36, 1.63)
    assert row["bound"] == "memory"
    assert kernels_bound(tables) == "memory"
    # Of more than half of the time nothing is said, and so nothing of the whole.
    few = {**tables, "step_roofline": steps.assign(bound=steps["bound"].where(steps["step"] < 40))}
    assert kernels_bound(few) is None
    (peak,) = tables["peaks"].to_dict("records")
    assert peak["flops_source"] == "NVIDIA H100 Tensor Core GPU datasheet, 2430615, 2024-09"
    assert ANALYSIS.answer(tables).startswith(
        "a decode step takes 794 us, its roofline is 487 us (memory): MBU 61.4 %, MFU 1.6 %"
    )


def test_what_is_lost_adds_up_to_the_nanosecond(tmp_path):
    tables = quick("roofline", planted(tmp_path, 20), "--model", config(tmp_path), *OF_PLANTED)
    steps, lost = tables["step_roofline"], tables["lost"]
    assert lost["total_ns"].sum() == steps["lost_ns"].sum() == (793_700 - 487_013) * len(steps)
    by_class = lost.set_index("class")["lost_ns"]
    assert by_class.to_dict() == {"compute": 750_985 - 487_013, "host": 793_700 - 750_985}
    # A GPU that is busy for less than the roofline: the floor is partly in what is idle.
    path = planted(tmp_path, 20, busy_ns=400_000)
    lost = quick("roofline", path, "--model", config(tmp_path), *OF_PLANTED)["lost"]
    assert lost.loc[lost["class"] == "compute", "lost_ns"].isna().all()
    assert lost.loc[lost["class"] == "compute", "reason"].notna().all()


NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def two_ranks(folder, steps_n=30):
    """Write two ranks whose steps compute 2.4 and 2.5 ms, and end 0.05 ms after both have."""
    chance = np.random.default_rng(7)
    clock = 10_000 + np.cumsum(chance.integers(2_650_000, 2_700_000, steps_n))
    for rank, compute_ns in enumerate((2_400_000, 2_500_000)):
        trace = TraceBuilder(gpu_name="NVIDIA H100 80GB HBM3").process(pid=1, name="server")
        trace.kernel("load", start_ns=2_000, duration_ns=1_000, launch=(500, 1_000))
        for at_ns in clock.tolist():
            trace.nvtx(OF_8, at_ns, at_ns + 60_000)
            begin_ns = at_ns + 20_000
            trace.kernel("sm90_xmma_gemm_bf16", start_ns=begin_ns, duration_ns=compute_ns,
                         launch=(at_ns + 1_000, at_ns + 9_000))  # fmt: skip
            trace.kernel(NCCL, start_ns=begin_ns + compute_ns, duration_ns=2_550_000 - compute_ns,
                         launch=(at_ns + 30_000, at_ns + 39_000))  # fmt: skip
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


def test_what_ranks_wait_for_each_other_is_lost_apart(tmp_path):
    words = ("--model", config(tmp_path), *OF_PLANTED[2:])
    (ranks := tmp_path / "ranks").mkdir()
    tables = quick("roofline", two_ranks(ranks), *words)
    assert set(tables["peaks"]["tp_source"]) == {"matched all-reduces"}
    steps, lost = tables["step_roofline"], tables["lost"]
    floor_ns = steps["roofline_ns"].iloc[0]
    assert set(steps["roofline_ns"]) == {floor_ns}
    shared = {"host": 20_000, "transfer": 50_000}
    expected = (
        {"waiting": 100_000, "compute": 2_400_000 - floor_ns, **shared},
        {"compute": 2_500_000 - floor_ns, **shared},
    )
    for rank, classes in enumerate(expected):
        some = lost[lost["rank"] == rank].set_index("class")
        assert some["lost_ns"].to_dict() == classes
        of_rank = steps[steps["rank"] == rank]
        assert some["total_ns"].sum() == of_rank["lost_ns"].sum()
        assert some["lost_pct"].sum() == pytest.approx(100)
    assert ANALYSIS.answer(tables).startswith("a decode step takes 2.57 ms, its roofline is 1.95 ")
    assert " in waits for ranks" in ANALYSIS.answer(tables)


def test_twice_the_peak_is_half_the_utilization(tmp_path):
    path, model = planted(tmp_path, 5), config(tmp_path)
    once, twice = (
        quick("roofline", path, "--model", model, "--tp", "8", "--peak-flops", str(989 * factor),
              "--peak-bandwidth", str(3350 * factor))["step_roofline"]
        for factor in (1, 2)
    )  # fmt: skip
    for name in ("mfu_pct", "mbu_pct"):
        assert np.allclose(once[name], 2 * twice[name], rtol=1e-12)


def test_above_the_peak_no_number_is_shown(tmp_path):
    tables = quick("roofline", planted(tmp_path, 5), "--model", config(tmp_path), "--tp", "2")
    steps = tables["step_roofline"]
    assert set(steps["reason"]) == {"wrong_model"}
    assert steps[["mfu_pct", "mbu_pct", "roofline_ns", "lost_ns"]].isna().all(axis=None)
    assert "wrong_model" in set(tables["findings"]["rule"])
    # 8 GB of weights fit, 800 GB do not: that needs no step.
    large = {**PLANTED, "num_hidden_layers": 2400}
    tables = quick("roofline", planted(tmp_path, 5), "--model", config(tmp_path, large),
                   *OF_PLANTED)  # fmt: skip
    assert tables["peaks"]["reason"].tolist() == ["wrong_model"]
    assert ANALYSIS.answer(tables).startswith("No roofline: 131 GB of weights do not fit into ")


FLASH, COMBINE = "flash_fwd_splitkv_kernel", "flash_fwd_splitkv_combine_kernel"


def layered(folder, launches, ranks_n=1, steps_n=12):
    """Write servers whose steps launch some kernels, each so many times."""
    folder.mkdir(exist_ok=True)
    every = [name for name, n in launches.items() for _ in range(n)]
    for rank in range(ranks_n):
        trace = TraceBuilder(gpu_name=H100).process(pid=1, name="server")
        trace.kernel("load", start_ns=2_000, duration_ns=1_000, launch=(500, 1_000))
        for step in range(steps_n):
            clock = 10_000 + 40_000_000 * step
            trace.nvtx(OF_8, clock, clock + 1_000_000)
            for place, name in enumerate(every):
                start_ns, at_ns = clock + 20_000 + 300_000 * place, clock + 1_000 + 5_000 * place
                trace.kernel(name, start_ns=start_ns, duration_ns=290_000,
                             launch=(at_ns, at_ns + 4_000))  # fmt: skip
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


@pytest.mark.parametrize(
    ("launches", "seen_n", "misfit"),
    [
        ({FLASH: 16, COMBINE: 16}, 16, "layers"),
        ({FLASH: 24, COMBINE: 24}, 24, None),
        ({FLASH: 48}, 48, None),  # two parts of the batch
        ({FLASH: 27}, 27, None),  # three tokens of a model that guesses
        ({FLASH: 60}, 60, "layers"),
        ({"sm90_xmma_gemm_bf16": 16}, None, None),
    ],
)
def test_a_step_that_launches_other_layers_is_of_another_model(launches, seen_n, misfit, tmp_path):
    path = layered(tmp_path / "ranks", launches)
    tables = quick("roofline", path, "--model", config(tmp_path))
    assert rows(tables["peaks"], "layers_n layers_seen_n misfit") == [(24, seen_n, misfit)]
    assert ("wrong_model" in set(tables["findings"]["rule"])) == (misfit is not None)
    assert tables["step_roofline"]["mbu_pct"].isna().all() == (misfit is not None)
    if misfit:
        expected = f"No roofline: The config has 24 layers, but a step's launches show {seen_n}. "
        assert ANALYSIS.answer(tables).startswith(expected)


@pytest.mark.parametrize(
    ("ranks_n", "reduces_n", "tp", "misfit"),
    [
        (2, 33, None, "layers"),
        (2, 49, None, None),
        (2, 49, 4, "ranks"),
        (2, 49, 2, None),
        (2, 1, None, None),  # once a step
        (1, 49, 4, None),  # one of four
    ],
)
def test_all_reduces_tell_layers_and_ranks(ranks_n, reduces_n, tp, misfit, tmp_path):
    path = layered(tmp_path / "ranks", {NCCL: reduces_n}, ranks_n)
    words = [] if tp is None else ["--tp", str(tp)]
    tables = quick("roofline", path, "--model", config(tmp_path), *words)
    assert {row[0] for row in rows(tables["peaks"], "misfit")} == {misfit}
    if misfit == "ranks":
        expected = "No roofline: --tp is 4, but all-reduces join 2 ranks. "
        assert ANALYSIS.answer(tables).startswith(expected)


def test_a_gpu_that_is_not_listed_has_no_peak(tmp_path):
    tables = quick("roofline", planted(tmp_path, 5), "--model", config(tmp_path), "--tp", "8")
    assert tables["step_roofline"]["mfu_pct"].notna().all()
    path = planted(tmp_path, 5, gpu="NVIDIA H100 80GB HBM3 MIG")
    tables = quick("roofline", path, "--model", config(tmp_path), *OF_PLANTED)
    assert set(tables["step_roofline"]["reason"]) == {"peak"}
    assert gpu_peak("NVIDIA H100") is None


def test_every_peak_names_its_data_sheet():
    for name, peak in _peaks().items():
        assert name
        assert peak.flops_s
        assert re.fullmatch(r"NVIDIA .*, 20[12][0-9](-[01][0-9])?", peak.source)


def test_decoding_below_the_roofline_is_priced(tmp_path):
    path = planted(tmp_path, 50, cost_ns=1_000_000, busy_ns=900_000)
    tables = quick("roofline", path, "--model", config(tmp_path), *OF_PLANTED)
    findings = tables["findings"]
    row = findings[findings["rule"] == "decode_below_roofline"].iloc[0]
    steps = len(tables["step_roofline"])
    assert row["gain_ns"] == pytest.approx((1_000_000 - 487_013 / 0.85) * steps, rel=1e-6)
    tables = quick("roofline", planted(tmp_path, 50), "--model", config(tmp_path), *OF_PLANTED)
    assert "decode_below_roofline" not in set(tables["findings"]["rule"])


def of_batch(requests, keys):
    sums = f"sq{requests}sk{keys}sqsq{requests}sqsk{keys}"
    return f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)_generation_{requests}({sums})"


@pytest.mark.parametrize(
    "case",
    [
        # 1,024 requests compute for 15.6 ms at the peak and read for 8.5.
        (of_batch(1024, 1024 * 100), 20_000_000, "(compute): MBU 42.6 %, MFU 78.0 %"),
        # 8 requests, whose contexts the name does not tell: they may take all of the rest.
        ("execute_context_0(0)_generation_8(8)", 10_000_000, "(memory): MBU 44.8 %"),
    ],
)
def test_decoding_that_is_no_further_from_its_roofline_than_known_is_innocent(case, tmp_path):
    name, cost_ns, line = case
    path = planted(tmp_path, 50, cost_ns=cost_ns, busy_ns=cost_ns - 100_000, name=name)
    tables = quick("roofline", path, "--model", config(tmp_path, LLAMA_3_8B), "--tp", "1",
                   "--peak-bandwidth", "3350")  # fmt: skip
    assert line in ANALYSIS.answer(tables)
    assert "decode_below_roofline" not in set(tables["findings"]["rule"])


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("aten::mm, seq = 5, op_id = 7, sizes = [[64, 4096], [4096, 14336]]", (1, 64, 14336, 4096)),
        ("aten::addmm, op_id = 7, sizes = [[8], [2, 4], [4, 8], [], []]", (1, 2, 8, 4)),
        ("aten::bmm, seq = 5, op_id = 7, sizes = [[3, 2, 4], [3, 4, 8]]", (3, 2, 8, 4)),
        ("aten::baddbmm, sizes = [[3, 2, 8], [3, 2, 4], [3, 4, 8], [], []]", (3, 2, 8, 4)),
        ("aten::linear, seq = 1, op_id = 2, sizes = [[5, 2, 4], [8, 4], [8]]", (1, 10, 8, 4)),
        ("aten::_scaled_mm, sizes = [[16, 32], [32, 64], [], []]", (1, 16, 64, 32)),
        ("aten::mm, sizes = [[64, 4096], [4095, 14336]]", None),
        ("aten::cat, sizes = [[[64, 4096], [4096, 14336]], []]", None),
        ("aten::mul, sizes = [[64, 4096], [4096, 14336]]", None),
        ("aten::mm, sizes = [[64,, 4096], [4096, 14336]]", None),
        ("aten::mm, sizes = [[\u0666\u0664, 4096], [4096, 14336]]", None),
        ("aten::mm, sizes = [[99999999999999999999, 4096], [4096, 14336]]", None),
        ("aten::mm, sizes = [[999999999, 999999999], [999999999, 999999999]]", None),
    ],
)
def test_shapes_of_operators(text, shape):
    assert shape_of(text) == shape


def test_work_of_a_product():
    kernel = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"
    assert operand_type(kernel) == "bf16"
    flops, size_bytes = gemm_work((1, 64, 14336, 4096), element_bytes(kernel))
    assert flops == 2 * 64 * 14336 * 4096
    assert size_bytes == 2 * (64 * 4096 + 4096 * 14336 + 64 * 14336)
    assert operand_type("ampere_sgemm_128x64_tn") == "fp32"
    assert element_bytes("some_gemm_kernel") is None
    # TraceLens (PerfModel/perf_model.py), GEMM.flops_func and bytes_func without a bias:
    # 2 M N K, and M K bpe_mat1 + K N bpe_mat2 + M N bpe_output.
    for m, n, k in ((1, 4096, 4096), (64, 14336, 4096), (8192, 8192, 8192)):
        flops, size_bytes = gemm_work((1, m, n, k), (1.0, 1.0, 2.0))
        assert (flops, size_bytes) == (2 * m * n * k, m * k + k * n + 2 * m * n)


def products(folder, took_ns, kernel="nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", rows=4096):
    """Write 10 operators of two kernels each (split over K), ROWS x 4096 x 4096."""
    trace = TraceBuilder(gpu_name="NVIDIA H100 80GB HBM3").process(pid=1, name="python")
    clock = 10_000
    for place in range(10):
        text = f"aten::mm, seq = {place}, op_id = {place}, sizes = [[{rows}, 4096], [4096, 4096]]"
        trace.nvtx(text, clock, clock + 30_000)
        for half in range(2):
            identity = trace.reserve_correlation_ids(1)
            at = clock + 1_000 + 10_000 * half
            trace.api("cudaLaunchKernel_v7000", start_ns=at, end_ns=at + 5_000,
                      correlation_id=identity)  # fmt: skip
            trace.kernel(kernel, start_ns=clock + 40_000 + half * took_ns // 2,
                         duration_ns=took_ns // 2, correlation_id=identity)  # fmt: skip
        clock += 50_000 + took_ns
    (folder / "rank0.sqlite").unlink(missing_ok=True)
    return trace.write_sqlite(folder / "rank0.sqlite")


@pytest.mark.slow
def test_products_by_shape(tmp_path):
    tables = quick("roofline", products(tmp_path, 500_000))
    (row,) = tables["gemm_roofline"].to_dict("records")
    assert (row["operators_n"], row["launches_n"], row["p50_ns"]) == (10, 20, 500_000)
    assert row["flops"] == 2 * 4096**3
    assert row["mfu_pct"] == pytest.approx(100 * 2 * 4096**3 / 989e12 / 500e-6)
    assert row["bound"] == "compute"
    findings = tables["findings"]
    gain = findings[findings["rule"] == "gemm_below_roofline"]["gain_ns"].item()
    assert gain == pytest.approx(5_000_000 * (1 - row["mfu_pct"] / 70), abs=1)
    assert ANALYSIS.answer(tables).startswith("GEMM 4096 x 4096 x 4096 (bf16): MFU 27.8 %")
    over = quick("roofline", products(tmp_path, 130_000))["gemm_roofline"]
    assert over["reason"].tolist() == ["over_peak"]
    assert over["mfu_pct"].isna().all()
    plain = quick("roofline", products(tmp_path, 500_000, "some_gemm_kernel"))["gemm_roofline"]
    assert set(plain["reason"]) <= {"type"}
    # 8 rows read all of the matrix: 2 % of the FLOPs, 80 % of the bandwidth.
    tables = quick("roofline", products(tmp_path, 12_600, rows=8))
    (row,) = tables["gemm_roofline"].to_dict("records")
    assert row["mfu_pct"] < 3
    assert row["mbu_pct"] == pytest.approx(2 * (4096**2 + 16 * 4096) / 3.35e12 / 12.6e-8)
    assert "gemm_below_roofline" not in set(tables["findings"]["rule"])


@pytest.mark.parametrize(("cost_ns", "reason"), [(793_700, "over_peak"), (9_000_000, None)])
def test_experts_that_uniform_routing_reaches_are_a_bound_and_blame_nobody(
    cost_ns, reason, tmp_path
):
    # 8 tokens reach 7.2 of 8 experts at most: 3.1 ms.
    path = planted(tmp_path, 20, cost_ns=cost_ns, busy_ns=cost_ns - 50_000)
    tables = quick("roofline", path, "--model", config(tmp_path, MIXTRAL), *OF_PLANTED)
    steps = tables["step_roofline"]
    assert [item if isinstance(item, str) else None for item in set(steps["reason"])] == [reason]
    assert steps["mbu_pct"].isna().all() == (reason is not None)
    assert tables["findings"].query("kind == 'performance'").empty
    assert "wrong_model" not in set(tables["findings"]["rule"])
    line = "fewer experts are read" if reason else "(bytes at most)"
    assert line in ANALYSIS.answer(tables)


@pytest.mark.slow
def test_without_any_source_one_line_says_how(tmp_path):
    tables = quick("roofline", planted(tmp_path, 5))
    assert ANALYSIS.answer(tables).startswith("No roofline: give --model config.json")
    assert tables["step_roofline"].empty
    assert tables["lost"].empty
    # With a model, the line says what else is missing.
    path = planted(tmp_path, 5, name="forward")
    for words in ((), ("--step", "forward")):
        tables = quick("roofline", path, "--model", config(tmp_path), *OF_PLANTED, *words)
        assert "give --tokens-per-step" in ANALYSIS.answer(tables)
        assert "give --model" not in ANALYSIS.answer(tables)


def test_samples_of_gpu_metrics_give_the_share_of_the_memory(tmp_path):
    trace = TraceBuilder(gpu_name="NVIDIA H100 80GB HBM3").process(pid=1, name="server")
    trace.kernel("sm90_xmma_gemm_bf16", start_ns=100_000, duration_ns=10_000_000)
    times = list(range(200_000, 10_000_000, 100_000))
    names = ("DRAM Read Throughput", "DRAM Write Bandwidth [Throughput %]", "Tensor Active")
    values = zip(names, (40, 10, 30), strict=True)
    trace.gpu_metrics({name: [value] * len(times) for name, value in values}, times_ns=times)
    tables = quick("roofline", trace.write_sqlite(tmp_path / "rank0.sqlite"))
    (row,) = tables["category_roofline"].to_dict("records")
    assert (row["category"], row["mbu_pct"], row["tensor_active_pct"]) == ("gemm", 50.0, 30.0)
    assert row["gb_s"] == pytest.approx(1675.0)
    assert row["own_pct"] == 100.0
    assert ANALYSIS.answer(tables).startswith("GPU metrics: gemm kernels use 50.0 %")
    # Neither is used to 60 %: what limits the kernels is not said.
    assert kernels_bound(tables) is None
    sampled = tables["category_roofline"]
    for used, bound in (({"mbu_pct": 61.0}, "memory"), ({"tensor_active_pct": 70.0}, "compute")):
        assert kernels_bound({**tables, "category_roofline": sampled.assign(**used)}) == bound


COMPUTE_PEAKS = ("--tp", "8", "--peak-bandwidth", "100000", "--peak-flops", "20")


@pytest.mark.parametrize(
    ("words", "word"),
    [(None, "GPU-BOUND"), (OF_PLANTED, "MEMORY-BOUND"), (COMPUTE_PEAKS, "COMPUTE-BOUND")],
)
def test_the_word_of_a_decode_is_what_its_roofline_says(words, word, tmp_path):
    asked = () if words is None else ("--model", config(tmp_path), *words)
    part = quick_part("llm_overview", planted(tmp_path, 12), "--only", "roofline", *asked)
    assert part.report.wall[0].bound.word == word
