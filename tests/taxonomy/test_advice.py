"""Advice on a late host knows what the host does, by the names of ranges, calls and functions."""

import pytest

from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.taxonomy.data_files import data_file


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"range": "DeepSpeedCPUAdam.step"}, "optimizer runs on the host"),
        ({"range": "offload_optimizer"}, "optimizer runs on the host"),
        ({"range": "save_checkpoint"}, "Checkpoints"),
        ({"range": "Trainer.save_model"}, "Checkpoints"),
        ({"range": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"}, "prefetch"),
        ({"range": "data"}, "prefetch"),
        ({"range": "convert_frame"}, "compiled in the loop"),
        ({"range": "torch._dynamo.compile"}, "compiled in the loop"),
        ({"range": "gc.collect"}, "gc.freeze"),
        ({"range": "cuda_graph_capture"}, "captured or instantiated"),
        ({"call": "cudaGraphInstantiate"}, "captured or instantiated"),
        ({"range": "sampler"}, "Sample on the GPU"),
        ({"range": "top_k"}, "Sample on the GPU"),
        ({"range": "detokenize"}, "Tokenize"),
        ({"range": "evaluate"}, "evaluation"),
        ({"range": "schedule"}, "scheduler"),
        ({"range": "scheduler.get_next_batch_to_run"}, "scheduler"),
        # What is known of the place says more than the call that waits there.
        ({"range": "CPUAdam", "call": "cudaStreamSynchronize"}, "optimizer runs on the host"),
        ({"range": "anything", "call": "cudaStreamSynchronize"}, ".item()"),
        ({"call": "cudaDeviceSynchronize"}, "torch.cuda.synchronize()"),
    ],
)
def test_the_place_decides(known, said):
    assert said in (advice_on(**known) or "")


@pytest.mark.parametrize(
    "name",
    [
        *("FSDP::pre_forward (blocks.#._checkpoint_wrapped_module)", "CheckpointFunction"),
        *("Torch-Compiled Region: 0/0", "CompiledFxGraph", "compiled_forward"),
        *("lr_scheduler.step", "Optimizer.step#AdamW.step", "upsample", "forward", "eagle_step"),
        *("data_parallel_all_reduce", "tokens", "gcd", "stopkey", "ProfilerStep#", "retrieval"),
    ],
)
def test_names_that_only_look_alike_have_no_advice(name):
    assert advice_on(range=name) is None
    assert advice_on(range=None, call="cudaLaunchKernel", state="unknown") is advice_on() is None


def test_every_row_has_its_source():
    rows = data_file("advice")["rows"]
    assert all(row["when"] and row["advice"].endswith(".") and row["source"] for row in rows)
    assert len({row["name"] for row in rows}) == len(rows)
