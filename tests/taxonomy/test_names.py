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
    ("cudaStreamGetCaptureInfo_v2_v11030", "cudaStreamGetCaptureInfo_v2"),
    ("cudaStreamGetCaptureInfo_v2_ptsz_v11030", "cudaStreamGetCaptureInfo_v2"),
    ("my_v2_helper", "my_v2_helper"),
    ("", ""),
    ("_v7000", "_v7000"),
]


@pytest.mark.parametrize(("name", "documented"), API_NAMES)
def test_api_version_and_default_stream_mark_are_stripped(name, documented):
    assert strip_api_version(name) == documented


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


BF16 = {"a_type": "bf16", "b_type": "bf16", "c_type": "bf16", "d_type": "bf16"}
BF16 |= {"data_types": "tst", "compute_type": "fp32", "beta": "bz"}


def sizes(*values):
    names = ("tile_m", "tile_n", "k_tile", "stages", "cluster_m", "cluster_n")
    return dict(zip(names, values, strict=False))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
            {**BF16, **sizes(192, 192, 64, 4, 2, 1), "order": "v", "epilogue": ("bias",)}
            | {"bias": True, "cooperative": "B", "layout": "TNN"},
        ),
        (
            "sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_bias_TNT",
            {**BF16, **sizes(64, 16, 64, 16, 2, 4), "arch": "sm100", "order": "h"}
            | {"split_k": True, "two_cta": True, "bias": True, "epilogue": ("bias",)}
            | {"layout": "TNT"},
        ),
        (  # the tile with K, and the stages alone
            "sm120_tst_mma_64x32x64_8_16x32x64_tmaAB_alignCD4_bz_TNNN",
            {**BF16, **sizes(64, 32, 64, 8), "arch": "sm120", "layout": "TNNN"}
            | {"other": ("mma", "16x32x64", "tmaAB", "alignCD4")},
        ),
        (  # five letters: types of A, B, C, the sum and D
            "qrtsq_128x256_128x6_v_Avec16UE4M3_Bblk128_gelubias_NTT",
            {"data_types": "qrtsq", "a_type": "fp8_e4m3", "b_type": "fp8_e5m2", "c_type": "bf16"}
            | {"compute_type": "fp32", "d_type": "fp8_e4m3", "order": "v", "bias": True}
            | {**sizes(128, 256, 128, 6), "scales": ("Avec16UE4M3", "Bblk128")}
            | {"epilogue": ("gelubias",), "layout": "NTT"},
        ),
        (  # what is not known stays, in order
            "xyz_64x64_64x4_4x1f_h_badd_relu_algo2_new_TNN",
            {"data_types": "xyz", **sizes(64, 64, 64, 4, 4, 1), "order": "h", "beta": "badd"}
            | {"epilogue": ("relu",), "other": ("f", "algo2", "new"), "layout": "TNN"},
        ),
        ("tst_448x64", {**BF16, **sizes(448, 64), "beta": None}),  # cut off
    ],
)
def test_the_parts_of_a_name_are_decoded(name, fields):
    assert decode_nvjet(f"nvjet_{name}") == NvjetFields(**fields)


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
    assert len(strip_api_version(text)) <= len(text)


RANGE_PARTS = st.lists(
    st.sampled_from(
        [", seq = 1", ", op_id = 22", ", sizes = [[1, 2], []]", " ", "aten::mm", "7", "x"]
    )
).map("".join)


@given(RANGE_PARTS | st.text())
def test_normalising_twice_changes_nothing(text):
    assert len(step_key(text)) <= len(text)
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


def test_of_counters_that_do_not_fit_the_first_stay():
    operator = "aten::cat, seq = 7, op_id = 3, sizes = [" + "[1, 2], " * 400 + "[]]"
    assert len(operator) > MOST_RANGE_LETTERS
    for text in (operator, "x" * MOST_RANGE_LETTERS):
        assert bounded_range(text) == text
    lists = ", sizes = [" + "[1, 2], " * 900 + "[]]"
    assert bounded_range("aten::cat, seq = 7, op_id = 3" + lists) == "aten::cat, seq = 7, op_id = 3"
