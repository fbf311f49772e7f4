"""Peak bandwidths are those of the right GPU, or not known."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table
from nsys_llm.recipes.llm_hotspots.per_rank.gpu_peaks import peak_bandwidths
from nsys_llm.testing.trace_metadata import global_tid


def peaks(gpus, devices=(), ids=(0, 1), pid=100):
    """Return the peaks of devices; `gpus` is {id: bytes/s}, `devices` (gpu, device, pid) rows."""
    columns = np.array(list(devices), dtype=np.int64).reshape(-1, 3).T
    tables = {
        "gpus": Table(
            {
                "gpu_id": np.array(list(gpus), dtype=np.int64),
                "bandwidth_bytes_s": np.array(list(gpus.values()), dtype=np.int64),
            }
        ),
        "cuda_devices": Table(dict(zip(("gpu_id", "device_id", "pid"), columns, strict=True))),
    }
    return peak_bandwidths(tables, global_tid(pid), ids)


def test_a_report_that_maps_devices_names_the_gpu_of_each():
    # Process 100 numbers the GPUs the other way round; process 200 is another one.
    devices = [(1, 0, 100), (0, 1, 100), (0, 0, 200)]
    assert peaks({0: 5, 1: 7}, devices) == {0: 7, 1: 5}


def test_without_a_map_equal_gpus_have_one_peak_and_others_none():
    assert peaks({0: 5, 1: 5}) == {0: 5, 1: 5}
    assert peaks({0: 5, 1: 7}) == {0: None, 1: None}
    assert peaks({}) == {0: None, 1: None}


@pytest.mark.parametrize("unknown", [0, NULL_INT])
def test_a_driver_that_does_not_know_says_nothing(unknown):
    assert peaks({0: unknown}, ids=(0,)) == {0: None}
    assert peaks({0: unknown}, [(0, 0, 100)], ids=(0,)) == {0: None}


def test_a_map_to_a_gpu_that_is_not_listed_is_as_good_as_none():
    assert peaks({0: 5}, [(NULL_INT, 0, 100)], ids=(0,)) == {0: 5}
    assert peaks({0: 5, 1: 7}, [(9, 0, 100)], ids=(0,)) == {0: None}
