"""Kernel names short enough for a table, and still telling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.view.kernel_names import kernel_label

NATIVE = "at::native::"
COPY = f"{NATIVE}direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]"
MUL = f"{NATIVE}BinaryFunctor<float, float, {NATIVE}binary_internal::MulFunctor<float>>"
NOCAST = f"void {NATIVE}gpu_kernel_impl_nocast"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (f"void {NATIVE}elementwise_kernel<(int)2, {NOCAST}<{MUL}>(const T1 &)>(int, T3)",
         "elementwise<Mul, float>"),
        (f"void {NATIVE}elementwise_kernel<(int)4, {NOCAST}<{COPY}::[lambda(c10::BFloat16)]>>(int)",
         "elementwise<direct_copy, bf16>"),
        (f"void {NATIVE}vectorized_elementwise_kernel<(int)4, {NATIVE}CUDAFunctor_add<float>>(int)",
         "vectorized_elementwise<add, float>"),
        (f"void {NATIVE}reduce_kernel<(int)1, {NATIVE}ReduceOp<float, {NATIVE}MeanOps<float>>>(T3)",
         "reduce<MeanOps, float>"),
        (f"void {NATIVE}<unnamed>::CatArrayBatchedCopy<(int)1>(char *, int)",
         "CatArrayBatchedCopy"),
        (f"void {NATIVE}(anonymous namespace)::softmax<(int)8, float>(T2 *)", "softmax<float>"),
        ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<(int)2>>>(T1)",
         "device<FlashAttnFwdSm90>"),
        ("std::enable_if<(T2>(0))&&vllm::_typeConvert<T1>::exists, void>::type "
         "vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *, long)",
         "fused_add_rms_norm_kernel<bf16>"),
        ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<float>>(T1 *)",
         "act_and_mul<silu_kernel, bf16>"),
        ("ncclDevKernel_AllReduce(ncclDevKernelArgsStorage<(unsigned long)4096>)",
         "ncclDevKernel_AllReduce"),
    ],
)  # fmt: skip
def test_a_label_keeps_what_tells_kernels_apart(name, label):
    assert kernel_label(name) == label


@pytest.mark.parametrize(
    "name", ["nvjet_tst_64x8_v_bz_TNT", "triton_poi_fused_add_0", "", "(", "a>b", "<<<", ")))"]
)
def test_what_is_no_cpp_function_stays(name):
    assert kernel_label(name) == name


@given(st.text(alphabet="ab<>()[]:, T&", max_size=60))
def test_no_text_ends_in_an_error_or_grows(name):
    assert len(kernel_label(name)) <= len(name)
