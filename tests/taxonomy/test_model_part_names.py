"""Parts of a model in the names of ranges, and the line of a stack."""

import pytest

from nsys_llm.taxonomy.model_parts import part_of_range, source_of


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{'Module': 'model.layers.0.mlp.gate_up_proj', 'Inputs': [[8, 4096]]}", "*"),
        ('{"Module": "lm_head"}', "lm_head"),
        ("layers.12.mlp.fc1", "layers.*.mlp.fc1"),
        ("model.layers.3.experts.7.w1", "model.layers.*.experts.*.w1"),
        ("_orig_mod.transformer.h.5.attn", "transformer.h.*.attn"),
        ("forward (layers.3._checkpoint_wrapped_module)", "layers.*"),
        ("layer_3", "layer_*"),
        ("Decoder layer 3", "Decoder layer *"),
        ("nn.Module: LlamaMLP_3", "LlamaMLP"),
        ("megatron.core.transformer.attention.Attention.forward.qkv", "Attention.qkv"),
    ],
)
def test_a_range_names_its_module(text, part):
    assert part_of_range(text) == ("model.layers.*.mlp.gate_up_proj" if part == "*" else part)


@pytest.mark.parametrize(
    "text",
    [
        *("step 12", "ProfilerStep#3", "aten::linear", "forward", "{'Module': 'model'}"),
        *("execute_context_0(0)_generation_4(4)", "FSDP::post_backward (layers.3)"),
        *("_forward_step 5: 0 ctx reqs, 4 gen reqs", "iteration 3/10", "batch.4", "hh.3"),
        *("player_3", "prefetch blocks of 12", "megatron.training.training.train_step", ""),
    ],
)
def test_other_ranges_name_none(text):
    assert part_of_range(text) is None


def test_the_innermost_frame_that_is_not_pytorch_s_own():
    frames = [
        "/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py:1:linear",
        "/tmp/torchinductor_me/ab/cab.py:2:call",
        "<string>:3:f",
        "/opt/venv/lib/python3.12/site-packages/vllm/attention/layer.py:4:forward",
        "/srv/run.py:5:main",
    ]
    assert source_of(frames) == "vllm/attention/layer.py:4"
    assert source_of(frames[:1]) == "torch/nn/functional.py:1"
    assert source_of([]) is None
