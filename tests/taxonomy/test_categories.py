import json
import re
from collections import Counter
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.taxonomy import categories
from nsys_llm.taxonomy.categories import (
    ENGINES,
    UNMATCHED,
    detect_engine,
    load_categories,
    load_rules,
)
from nsys_llm.taxonomy.data_files import data_file


def own_rules(engine):
    return [rule for rule in load_rules(engine).rules if rule.id.startswith(f"{engine}.")]


ALL_RULES = [rule for engine in ENGINES for rule in own_rules(engine)]

# Rules of an engine that know better what an inherited rule's kernel does there.
DELIBERATE_OVERRIDES = {
    ("vllm", "pytorch.segmented_sort"): "vllm.logits_sort",
    ("vllm", "pytorch.argmax"): "vllm.greedy",
    ("sglang", "pytorch.argmax"): "sglang.greedy",
    ("trtllm", "pytorch.argmax"): "trtllm.greedy",
}


# --- the files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_each_rule_wins_its_own_example(engine):
    rules = load_rules(engine)
    winners = {rule.id: rules.classify(rule.example).rule_id for rule in own_rules(engine)}
    assert winners == {rule_id: rule_id for rule_id in winners}


@pytest.mark.parametrize("engine", ENGINES)
def test_no_engine_changes_the_category_of_an_inherited_example_by_accident(engine):
    rules = load_rules(engine)
    changed = {
        (engine, rule.id): rules.classify(rule.example).rule_id
        for rule in rules.rules
        if rules.classify(rule.example).category != rule.category
    }
    assert changed == {key: to for key, to in DELIBERATE_OVERRIDES.items() if key[0] == engine}


def test_rule_ids_are_unique_and_name_their_engine():
    counts = Counter(rule.id for rule in ALL_RULES)
    assert [rule_id for rule_id, n in counts.items() if n > 1] == []
    assert {rule_id.split(".")[0] for rule_id in counts} == set(ENGINES)
    assert len(ALL_RULES) == sum(len(own_rules(engine)) for engine in ENGINES)


def test_every_category_is_declared_once_and_used():
    declared = [category.id for category in load_categories()]
    assert sorted(declared) == sorted({rule.category for rule in ALL_RULES})
    assert UNMATCHED not in declared
    assert all(category.title and category.meaning.endswith(".") for category in load_categories())


def test_every_flag_has_a_meaning_with_a_source_and_is_used():
    rules = resources.files("nsys_llm.taxonomy") / "data" / "kernel_rules" / "generic.json"
    meanings = json.loads(rules.read_text("utf-8"))["flag_meanings"]
    assert set(meanings) == {flag for rule in ALL_RULES for flag in rule.flags}
    assert all("Source: " in meaning for meaning in meanings.values())


def test_every_rule_says_operation_and_source():
    assert [rule.id for rule in ALL_RULES if not rule.operation or not rule.source] == []


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "generic"])
@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("triton_red_fused__to_copy_add_embedding_mean_mul_pow_rsqrt_0", "norm"),
        ("triton_tem_fused_addmm_relu_3", "gemm"),
        ("triton_per_fused__softmax_add_1", "softmax"),
    ],
)
def test_of_operations_that_torch_compile_lists_the_main_one_decides(engine, name, category):
    assert load_rules(engine).classify(name).category == category


# Base names that a profiling guide maps to model operations.
OPERATIONS = [
    (
        "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, float>(T13)",
        "gemv",
        "matrix-vector",
    ),
    ("FusedAddRMSNormKernel", "norm", "residual add + RMS norm"),
    ("BatchDecodeWithPagedKVCacheKernel", "attention", "paged attention decode"),
    ("BatchPrefillWithPagedKVCacheKernel", "attention", "paged attention prefill"),
    ("AppendPagedKVCacheKernel", "kv_cache", "KV cache page append"),
    ("RadixTopKKernel_Unified", "sampling", "top-k selection of tokens"),
    ("silu_mul_fused_kernel", "activation", "SiLU or GELU activation x gate"),
]


@pytest.mark.parametrize(("name", "category", "operation"), OPERATIONS)
def test_a_kernel_is_named_by_its_model_operation(name, category, operation):
    match = load_rules("generic").classify(name)
    assert match.category == category
    assert match.operation is not None
    assert match.operation.startswith(operation)


# --- flags -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", {"cublas_heuristic", "split_k"}),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", {"cublas_heuristic"}),
        ("splitKreduce_kernel", {"cublas_heuristic", "split_k"}),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", {"cublas_heuristic"}),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int>>", set()),
        (
            "void vllm::merge_attn_states_kernel<__nv_bfloat16, (unsigned int)128>()",
            {"cascade_merge"},
        ),
        ("void flashinfer::PersistentVariableLengthMergeStatesKernel<(int)8>()", {"cascade_merge"}),
        ("void flash::flash_fwd_splitkv_combine_kernel<int>()", {"cascade_merge"}),
        ("void flash::flash_fwd_splitkv_kernel<int>()", set()),
        ("void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<int>()", {"atomics"}),
        ("void at::native::indexFuncLargeIndex<float, long, ReduceAdd>()", {"atomics"}),
        # the backward pass of an embedding and index_put with accumulation sort first
        ("void at::native::embedding_backward_feature_kernel<float, float, long>()", set()),
        ("void at::native::<unnamed>::indexing_backward_kernel<float, (int)4>()", set()),
    ],
)
def test_flags_say_why_results_may_differ(name, flags):
    assert set(load_rules("pytorch").classify(name).flags) == flags


# --- recognition of the engine -----------------------------------------------------------------

PYTORCH_NAMES = [
    "void at::native::reduce_kernel<(int)512>(T3)",
    "triton_poi_fused_4",
    "nvjet_tst_64x8",
]
FLASHINFER_NAMES = [
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(int)0>(T1)",
    "void flashinfer::norm::FusedAddRMSNormKernel<(unsigned int)8, __nv_bfloat16>(T2 *)",
]
BORROWED_NAMES = ["void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<float>()"]
MARKS = {
    "vllm": ["kernel_unified_attention_2d"],
    "sglang": ["write_req_to_token_pool_triton"],
    "trtllm": ["void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<float>()"],
    "pytorch": ["_ZN2at6native13reduce_kernelILi512EEEvT_"],
}


@pytest.mark.parametrize("engine", MARKS)
def test_one_mark_of_an_engine_outweighs_what_it_runs_on(engine):
    names = (
        MARKS[engine] + PYTORCH_NAMES + FLASHINFER_NAMES + BORROWED_NAMES * (engine != "pytorch")
    )
    assert detect_engine(names) == engine


def test_kernels_borrowed_from_vllm_do_not_hide_sglang():
    borrowed = ["void vllm::act_and_mul_kernel<c10::BFloat16>()", *PYTORCH_NAMES]
    assert detect_engine(borrowed) == "vllm"
    assert detect_engine([*borrowed, "write_req_to_token_pool_triton"]) == "sglang"


@pytest.mark.parametrize("names", [[], FLASHINFER_NAMES, ["my_kernel", "nvjet_tst_64x8"], [""]])
def test_names_that_prove_no_engine_are_generic(names):
    assert detect_engine(names) == "generic"


# --- the machinery -----------------------------------------------------------------------------


#: More patterns than `re` keeps compiled by itself.
COMPILED = {rule.id: re.compile(rule.pattern) for rule in ALL_RULES}


def first_match(engine, name):
    return next(
        (rule.id for rule in load_rules(engine).rules if COMPILED[rule.id].search(name)), None
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_ruling_patterns_out_by_four_characters_changes_no_result(engine):
    rules = load_rules(engine)
    names = [rule.example for rule in ALL_RULES] + [rule.id for rule in ALL_RULES]
    assert [rules.classify(name).rule_id for name in names] == [
        first_match(engine, name) for name in names
    ]


def test_an_unknown_engine_is_refused_with_the_legal_ones():
    with pytest.raises(
        UsageError, match=r"'triton' is not an engine.* sglang, trtllm, pytorch, generic"
    ):
        load_rules("triton")


# --- the files --------------------------------------------------------------------------------

SCHEMA = json.loads(Path(__file__).with_name("kernel_rules.schema.json").read_text("utf-8"))


def file_faults(engine, content, generic):
    """Yield what is wrong with the file of an engine beside the generic one."""
    errors = list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(content))
    yield from (f"{list(error.path)}: {error.message}" for error in errors)
    if errors:
        return
    if content["engine"] != engine:
        yield f"the engine of {engine} is {content['engine']}"
    # Only towards the end of ENGINES, so that no chain of extensions can run in a circle.
    if content["extends"] not in (None, *ENGINES[ENGINES.index(engine) + 1 :]):
        yield f"{engine} cannot extend {content['extends']}"
    if engine == "generic" and not {"categories", "flag_meanings"} <= content.keys():
        yield "categories and flags are not declared"
    for entry in (*content["rules"], *content["detect"]):
        yield from pattern_faults(entry["pattern"])
    for rule in content["rules"]:
        # Whatever rules out a pattern by its characters needs some.
        if not all(len(text) >= 4 for text in categories._literals(rule["pattern"])):
            yield f"{rule['id']}: each alternative needs 4 fixed characters"
        known = {category["id"] for category in generic["categories"]}
        if rule["category"] not in known or set(rule.get("flags", ())) - {
            *generic["flag_meanings"]
        }:
            yield f"{rule['id']} names a category or flag that is not declared"
    ids = [rule["id"] for rule in content["rules"]]
    if len(set(ids)) < len(ids):
        yield "a rule is declared twice"


def pattern_faults(pattern):
    try:
        flags = re.compile(pattern).flags
    except re.error as error:
        yield f"{pattern} is not a regular expression: {error}"
        return
    if flags & (re.IGNORECASE | re.VERBOSE):
        yield f"{pattern} switches on flags of the whole pattern"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_file_of_an_engine_has_no_fault(engine):
    content, generic = (data_file(f"kernel_rules/{name}") for name in (engine, "generic"))
    assert list(file_faults(engine, content, generic)) == []
