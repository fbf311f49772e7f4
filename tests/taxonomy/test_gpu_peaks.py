"""Peaks of GPUs and of slices of them."""

import pytest

from nsys_llm.taxonomy.gpus import gpu_peak, is_percent, recorded_bandwidth

H100 = "NVIDIA H100 80GB HBM3"
SLICE = f"{H100} MIG 1g.10gb"


@pytest.mark.parametrize(
    ("name", "kind", "tflops"),
    [
        # 360 and 1,440 PFLOP/s of 72 GPUs with sparsity
        ("NVIDIA GB200", "bf16", 360e3 / 72 / 2),
        ("NVIDIA GB300", "fp4", 1080e3 / 72),
        ("NVIDIA B300 SXM6 AC", "fp4", 108e3 / 8),
        ("NVIDIA H100 NVL", "bf16", 1671 / 2),
        # 188 SMs of 128 lanes at 2,617 MHz, of which tensor cores do four times as much
        (
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "bf16",
            188 * 128 * 2 * 2.617 * 4 / 1e3,
        ),
        ("NVIDIA L4", "bf16", 242 / 2),
        ("NVIDIA L40", "bf16", 362 / 2),
        ("NVIDIA A10", "bf16", 250 / 2),
        ("NVIDIA A30", "bf16", 330 / 2),
        ("NVIDIA A40", "bf16", 299.4 / 2),
        # 16,384 and 21,760 lanes at 2,520 and 2,407 MHz; with FP32 accumulation twice their FP32
        ("NVIDIA GeForce RTX 4090", "bf16", 16_384 * 2 * 2.52 * 2 / 1e3),
        ("NVIDIA GeForce RTX 5090", "bf16", 21_760 * 2 * 2.407 * 2 / 1e3),
    ],
)
def test_peaks_are_dense_and_those_of_one_gpu(name, kind, tflops):
    peak = gpu_peak(name)
    assert peak is not None
    assert peak.flops_s[kind] / 1e12 == pytest.approx(tflops, rel=0.002)


def test_a_slice_has_its_part_of_the_peaks_and_says_so():
    whole, part = gpu_peak(H100, 132), gpu_peak(SLICE, 16)
    assert whole is not None
    assert part is not None
    assert part.flops_s["bf16"] == whole.flops_s["bf16"] * 16 / 132
    assert part.source.endswith("16 of 132 SMs")
    assert part.pinned_gb_s is None
    # drivers that leave out the profile of the slice
    assert gpu_peak(H100, 16) == part


@pytest.mark.parametrize(
    ("name", "sms_n"), [(SLICE, None), (SLICE, 132), ("NVIDIA B100 MIG 1g.23gb", 18), (None, 16)]
)
def test_the_peaks_of_a_slice_are_never_those_of_the_whole_gpu(name, sms_n):
    assert gpu_peak(name, sms_n) is None


@pytest.mark.parametrize(
    ("name", "sms_n", "gb_s", "is_known"),
    [
        (SLICE, 16, 3350, False),
        (SLICE, 16, 419, True),
        (H100, 132, 3350, True),
        ("NVIDIA L4", 58, 300, True),
        (SLICE, None, None, False),
    ],
)
def test_a_slice_that_is_said_to_have_the_whole_bandwidth_has_none(name, sms_n, gb_s, is_known):
    bytes_s = gb_s and gb_s * 10**9
    assert recorded_bandwidth(name, sms_n, bytes_s) == (bytes_s if is_known else None)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("SMs Active [Throughput %]", True),
        ("GPC Clock Frequency [MHz]", False),
        ("Brand New [%]", True),
        ("SM Active", True),
        ("Async Compute in Flight", True),
        ("Async Compute In Flight", True),
        ("DRAM Read Throughput", True),
        ("GPC Clock Frequency", False),
        ("PCIe Read Requests to BAR1", False),
        ("Brand New", False),
        ("", False),
    ],
)
def test_the_unit_of_a_metric(metric, expected):
    assert is_percent(metric) is expected
