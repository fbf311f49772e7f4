import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.taxonomy import names
from nsys_llm.taxonomy.names import (
    MOST_LETTERS,
    MOST_RANGE_LETTERS,
    NvjetFields,
    bounded_name,
    bounded_range,
    decode_nvjet,
    normalize_range,
    step_key,
    strip_api_version,
    without_counters,
)

# Names as Nsight Systems writes them; CUPTI's headers say where the suffixes stand.
API_NAMES = [
    ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
    ("cudaGetFuncBySymbol_v11000", "cudaGetFuncBySymbol"),
    ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
    ("cudaMemcpy_ptds_v7000", "cudaMemcpy"),
    ("cudaMemcpyAsync_ptsz", "cudaMemcpyAsync"),
    ("cudaLaunchKernel_v7000_ptsz", "cudaLaunchKernel"),
    ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
    ("cuMemAlloc_v2", "cuMemAlloc"),
    ("cuLaunchKernel_ptsz", "cuLaunchKernel"),
    ("cuLaunchKernelEx", "cuLaunchKernelEx"),
    ("", ""),
    ("_v7000", "_v7000"),
]


@pytest.mark.parametrize(("name", "documented"), API_NAMES)
def test_api_version_and_default_stream_mark_are_stripped(name, documented):
    assert strip_api_version(name) == documented


@pytest.mark.parametrize("suffix", ["_v11030", "_ptsz_v11030"])
def test_a_v2_that_belongs_to_a_runtime_name_stays(suffix):
    assert strip_api_version("cudaStreamGetCaptureInfo_v2" + suffix) == (
        "cudaStreamGetCaptureInfo_v2"
    )


def test_a_version_in_the_middle_of_a_name_stays():
    assert strip_api_version("my_v2_helper") == "my_v2_helper"


RANGES = [
    ("aten::mul, seq = 45643, op_id = 991912", "aten::mul"),
    ("aten::copy_, op_id = 998946", "aten::copy_"),
    ("AllToAll4D, seq = 45440, op_id = 990760", "AllToAll4D"),
    ("nccl:all_to_all, op_id = 995694", "nccl:all_to_all"),
    ("MulBackward0, seq = 7", "MulBackward0"),
    (
        "aten::mm, seq = 1, op_id = 2, sizes = [[4, 8], [], [8]], input_op_ids = [(12,0), (3,1)]",
        "aten::mm",
    ),
    ("aten::add, sizes = []", "aten::add"),
    ("prefill, 4 requests", "prefill, 4 requests"),
    ("op_id = 4, then more", "op_id = 4, then more"),
    ("  step 3 ", "step 3"),
    ("", ""),
]


@pytest.mark.parametrize(("name", "normalised"), RANGES)
def test_only_what_pytorch_appends_is_removed_from_a_range(name, normalised):
    assert normalize_range(name) == normalised


STEPS = [
    ("step 12", "step #"),
    ("iteration_7", "iteration_#"),
    ("iter5", "iter#"),
    ("execute_context_2(153)_generation_0(0)", "execute_context_#(#)_generation_#(#)"),
    ("forward, seq = 3, op_id = 9", "forward"),
    ("AllToAll4D", "AllToAll4D"),
    ("decode", "decode"),
]


@pytest.mark.parametrize(("name", "key"), STEPS)
def test_running_numbers_do_not_tell_steps_apart(name, key):
    assert step_key(name) == key


def test_every_part_of_the_name_from_the_blog_is_decoded():
    assert decode_nvjet("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN") == NvjetFields(
        data_types="tst",
        a_type="bf16",
        b_type="bf16",
        c_type="bf16",
        compute_type="fp32",
        d_type="bf16",
        tile_m=192,
        tile_n=192,
        k_tile=64,
        stages=4,
        cluster_m=2,
        cluster_n=1,
        order="v",
        beta="bz",
        epilogue=("bias",),
        bias=True,
        cooperative="B",
        layout="TNN",
    )


def test_split_k_and_two_thread_block_instructions_are_seen():
    fields = decode_nvjet("nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_bias_TNT")
    assert (fields.arch, fields.tile_m, fields.tile_n) == ("sm100", 64, 16)
    assert (fields.k_tile, fields.stages) == (64, 16)
    assert (fields.cluster_m, fields.cluster_n) == (2, 4)
    assert (fields.split_k, fields.two_cta, fields.bias) == (True, True, True)
    assert (fields.order, fields.layout, fields.other) == ("h", "TNT", ())


def test_five_letters_name_the_types_of_a_b_c_sum_and_d():
    fields = decode_nvjet(
        "nvjet_sm103_oohsh_128x128_256x7_2x2_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT"
    )
    assert (fields.a_type, fields.b_type) == ("fp4_e2m1", "fp4_e2m1")
    assert (fields.c_type, fields.compute_type, fields.d_type) == ("fp16", "fp32", "fp16")
    assert fields.scales == ("Avec16UE4M3", "Bvec16UE4M3")
    mixed = decode_nvjet("nvjet_qrtsq_128x256_128x6_2x1_v_bz_TNT")
    assert (mixed.a_type, mixed.b_type, mixed.c_type) == ("fp8_e4m3", "fp8_e5m2", "bf16")
    assert (mixed.compute_type, mixed.d_type) == ("fp32", "fp8_e4m3")


def test_sm120_writes_the_tile_with_k_and_the_stages_alone():
    fields = decode_nvjet("nvjet_sm120_tst_mma_64x32x64_8_16x32x64_tmaAB_alignCD4_bz_TNNN")
    assert (fields.tile_m, fields.tile_n, fields.k_tile, fields.stages) == (64, 32, 64, 8)
    assert (fields.cluster_m, fields.cluster_n, fields.layout) == (None, None, "TNNN")
    assert fields.other == ("mma", "16x32x64", "tmaAB", "alignCD4")


def test_an_added_matrix_and_a_cluster_with_a_letter_are_read():
    fields = decode_nvjet("nvjet_tst_128x192_64x6_4x1f_2cta_v_badd_NTT")
    assert (fields.beta, fields.cluster_m, fields.cluster_n) == ("badd", 4, 1)
    assert fields.other == ("f",)


def test_fused_activations_with_a_bias_count_as_bias():
    fields = decode_nvjet("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_gelubias_TNN")
    assert (fields.epilogue, fields.bias, fields.cooperative) == (("gelubias",), True, "A")
    assert decode_nvjet("nvjet_tss_64x8_64x16_4x1_v_bz_relu_TNT").bias is False


def test_unknown_parts_are_kept_in_order():
    fields = decode_nvjet("nvjet_qqtst_112x128_128x7_2x1_v_bz_coopA_algo2_new_TNN")
    assert fields.other == ("algo2", "new")


def test_letters_without_a_known_type_stay_raw():
    fields = decode_nvjet("nvjet_xyz_64x64_64x4_1x1_h_bz_TNN")
    assert (fields.data_types, fields.a_type, fields.compute_type) == ("xyz", None, None)


def test_a_name_that_is_cut_off_gives_the_parts_that_are_left():
    fields = decode_nvjet("nvjet_hsh_448x64")
    assert (fields.tile_m, fields.tile_n, fields.k_tile, fields.layout) == (448, 64, None, None)


@pytest.mark.parametrize(
    "name", ["", "nvjet", "nvjet_", "nvjet__", "sm90_xmma_gemm", "my_nvjet_tst"]
)
def test_another_name_is_not_decoded(name):
    assert decode_nvjet(name) is None


NVJET_WORDS = ["sm100", "tst", "192x192", "64x4", "2x1f", "64x64x64", "8", "v", "bz", "coopA", "é"]
NVJET_PARTS = st.lists(st.sampled_from([*NVJET_WORDS, "bias", "splitK", "2cta", "TNN"])).map(
    "_".join
)


@given(NVJET_PARTS | st.text(max_size=60))
def test_any_text_after_the_prefix_is_decoded_without_loss_of_tokens(text):
    fields = decode_nvjet("nvjet_" + text)
    assert fields is None or all(token in text for token in fields.other)


@given(st.text() | st.text(alphabet="cuda_vptsz0123456789"))
def test_names_of_any_kind_never_raise(text):
    decode_nvjet(text)
    assert len(strip_api_version(text)) <= len(text)
    assert len(step_key(text)) <= len(text)


RANGE_PARTS = st.lists(
    st.sampled_from(
        [", seq = 1", ", op_id = 22", ", sizes = [[1, 2], []]", " ", "aten::mm", "7", "x"]
    )
).map("".join)


@given(RANGE_PARTS | st.text())
def test_normalising_twice_changes_nothing(text):
    assert normalize_range(normalize_range(text)) == normalize_range(text)
    assert step_key(step_key(text)) == step_key(text)


#: The same by expressions that look at a name again from each of its parts.
TAIL = re.compile(
    r"(?:,\s*(?:(?:seq|op_id)\s*=\s*-?[0-9]+|(?:sizes|input_op_ids)\s*=\s*\[[^=]*\])\s*)+\Z"
)
TAIL_PARTS = st.lists(
    st.sampled_from([", seq = 1", ",sizes=[]", ", op_id", "=", ",", " ", "]", "[", "-7", "x"])
).map("".join)


@given(TAIL_PARTS)
def test_counters_are_those_that_reach_the_end(text):
    assert without_counters(text) == TAIL.sub("", text)


@given(st.text(alphabet="1ab_- "))
def test_numbers_inside_words_are_kept(text):
    number = re.compile(r"(?<![A-Za-z0-9])[0-9]+|[0-9]+(?![A-Za-z0-9])")
    assert names._RUNNING_NUMBER.sub("#", text) == number.sub("#", text)


HOSTILE = {
    "tail": "x" + ", seq = 1" * 7_280 + "!",
    "tail of lists": "x" + ", sizes = [" + "]" * 60_000 + "!",
    "digits": "y" + "1" * 60_000 + "z",
    "words": "a1" * 30_000,
    "commas": ", " * 30_000 + "=",
    "space": "x, " + " " * 60_000 + "=",
    "id": "0x" + "f" * 60_000 + "g",
    "prompt": "step[ execute_context_" * 3_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_name_of_60_kb_takes_no_time(kind):
    began_s = time.process_time()
    text = bounded_range(HOSTILE[kind])
    assert step_key(text) == step_key(bounded_range(HOSTILE[kind]))
    assert time.process_time() - began_s < 0.5
    assert len(text) <= MOST_RANGE_LETTERS


def test_long_names_that_differ_stay_different():
    long = "prompt " * 2_000
    assert len(bounded_name(long)) == len(bounded_name(long + "x")) == MOST_LETTERS
    assert bounded_name(long) != bounded_name(long + "x")
    assert bounded_name(long + "1") != bounded_name(long + "2")
    assert bounded_range(long) != bounded_range(long + "x")


def test_repetitions_of_a_long_range_stay_repetitions():
    first, second = (bounded_range(f"step {n}: " + "some prompt " * 100) for n in (9, 10))
    assert step_key(first) == step_key(second) == first == second
    assert bounded_range(first) == first


def test_names_that_fit_are_as_they_were():
    operator = "aten::cat, seq = 7, op_id = 3, sizes = [" + "[1, 2], " * 400 + "[]]"
    assert len(operator) > MOST_RANGE_LETTERS
    for text in (operator, "x" * MOST_RANGE_LETTERS):
        assert bounded_range(text) == text
    assert bounded_name("x" * MOST_LETTERS) == "x" * MOST_LETTERS


def test_of_counters_that_do_not_fit_the_first_stay():
    lists = ", sizes = [" + "[1, 2], " * 900 + "[]]"
    assert bounded_range("aten::cat, seq = 7, op_id = 3" + lists) == "aten::cat, seq = 7, op_id = 3"
