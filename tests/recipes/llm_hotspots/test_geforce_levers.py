"""FP32 matrix products by GPU: what is advised, and what a usual fix leaves."""

from __future__ import annotations

import pytest
from effort import at_night
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.taxonomy.kernel_levers import load_kernel_levers

GENERAL, GEFORCE = "gemms_without_tensor_cores", "geforce_gemms_without_tensor_cores"


@pytest.mark.parametrize(
    ("gpu", "rule"),
    [
        ("NVIDIA GeForce RTX 3070 Ti", GEFORCE),
        ("NVIDIA TITAN RTX", GEFORCE),
        ("NVIDIA RTX A6000", GENERAL),
        ("NVIDIA GeForce GTX 1080 Ti", None),
        ("NVIDIA B200", None),
        *at_night(
            ("NVIDIA GeForce RTX 4090", GEFORCE),
            ("NVIDIA RTX 6000 Ada Generation", GENERAL),
            ("NVIDIA A100-SXM4-80GB", GENERAL),
        ),
    ],
)
def test_the_advice_is_that_of_the_gpu(tmp_path, gpu, rule):
    trace = TraceBuilder(gpu_name=gpu)
    trace.kernel("ampere_sgemm_128x64_tn", start_ns=0, duration_ns=800_000)
    trace.kernel("triton_poi_fused_add_mul_0", start_ns=800_000, duration_ns=200_000)
    findings = quick("llm_hotspots", trace.write_sqlite(tmp_path / "r.sqlite"))["findings"]
    named = findings[findings["rule"].isin([GENERAL, GEFORCE])]
    assert named["rule"].tolist() == ([rule] if rule else [])
    if rule:
        # Half of 800 us, of 1 ms.
        assert named["gain_pct"].tolist() == [40.0]
        assert ("TF32 gains little" in named["recommendation"].iloc[0]) == (rule == GEFORCE)


def test_only_the_size_and_the_gpus_differ():
    general, geforce = (vars(load_kernel_levers()[name]) for name in (GENERAL, GEFORCE))
    differ = {name for name in general if general[name] != geforce[name]}
    assert differ == {"id", "gpus", "only_there", "time_left", "left_source", "condition", "source"}


@pytest.mark.traces
def test_the_real_training_on_a_geforce(traces):
    path = traces / "public" / "training_rtx3070ti.sqlite"
    findings = quick("llm_hotspots", path)["findings"].set_index("rule")
    # Half of 38.7 % of the span.
    assert findings.loc[GEFORCE, "gain_pct"] == pytest.approx(38.7 / 2, abs=0.1)
