"""The first findings about kernels name the part of the model and the line that launches them."""

from __future__ import annotations

import json

import pytest
from command_line import run
from model_world import ModelWorld
from quick_run import quick_part

ATTENTION = "vllm/model_executor/models/llama.py:673"


def kernel_findings(folder, said=None, eager=False):
    """Return the findings of llm_hotspots on kernels by rule, with their opportunities priced."""
    world = ModelWorld()
    if eager:
        world.eager()
    for _ in range(6):
        world.replay(3)
        world.replay(5, scale=2)
    path, words = world.trace.write_sqlite(folder / "rank0.sqlite"), []
    if said:
        notes = folder / "notes.json"
        notes.write_text(json.dumps(said(world.annotations())))
        words = ["--graph-annotations", str(notes)]
    parts = quick_part(
        "llm_overview", path, *words, "--only", "llm_hotspots,nvtx_phase_attribution"
    )
    return {made.rule: made for made in parts.parts["llm_hotspots"].report.findings}


@pytest.mark.slow
def test_part_and_line_stand_in_the_title(tmp_path):
    found = kernel_findings(tmp_path, said=lambda notes: notes)
    assert found["old_attention"].title.endswith(
        f" %, in `model.layers.*.self_attn.attn` (`{ATTENTION}`)"
    )
    pointwise = found["unfused_pointwise"]
    part, share = "`model.layers.*.mlp.act_fn`", pointwise.evidence[-2].value
    assert pointwise.title.startswith(f"Unfused pointwise kernels, {share:.1f} % in {part} (")
    assert f"{part} (`vllm/model_executor/models/llama.py:80`): {share:.1f} %;" in pointwise.details


def test_what_the_eager_run_tells_is_called_inferred(tmp_path):
    found = kernel_findings(tmp_path, eager=True)
    assert found["old_attention"].title.endswith(
        " %, in `model.layers.*.self_attn.attn` (inferred)"
    )


@pytest.mark.slow
def test_the_first_screen_keeps_part_and_file(tmp_path):
    world = ModelWorld()
    for _ in range(8):
        world.replay(3)
    path, notes = world.trace.write_sqlite(tmp_path / "rank0.sqlite"), tmp_path / "notes.json"
    notes.write_text(json.dumps(world.annotations()))
    words = ["--input", path, "--output", tmp_path / "out", "--graph-annotations", notes]
    lines = run(*words, recipe="llm_overview").printed
    assert "  annotations: of 100.0 % of the kernels in CUDA graphs, by graphNodeId" in lines
    at = next(at for at, line in enumerate(lines) if "FlashAttention-2 on Hopper" in line)
    assert lines[at + 1].strip() == "model.layers.*.self_attn.attn (vllm/.../llama.py:673)"
    assert all(len(line) <= 80 for line in lines[: at + 2])
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "graph_annotations" not in record["options"]
