"""Profiles with known steps, as engines and frameworks write them; every operation knows its step.

    world = StepWorld(seed)
    with world.range("step 1"):
        world.launch("gemm", step=0)

The host launches one call after the other, the GPU runs them in order, later.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from trace_builder import TraceBuilder

#: Names that no rule of steps knows.
LAYER_KERNELS = ("norm", "qkv_gemm", "attention", "out_gemm", "mlp_gemm")
HEAD_KERNELS = ("embed", "final_norm", "logits_gemm", "argmax")


class StepWorld:
    """A rank under construction.

    Attributes:
        trace: The profile.
        truth: The step of each operation by its start on the GPU, -1 for none; starts are unique.
        ends: The end of each operation, likewise.
    """

    def __init__(self, seed: int, *, api: bool = True) -> None:
        self.trace = TraceBuilder()
        self.trace.reserve_correlation_ids(1)  # for what was launched before the capture began
        self.chance = random.Random(seed)
        self.truth: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.api = api
        self.host_ns = 1_000
        self.gpu_ns = 2_000

    def idle(self, least_ns: int = 200, most_ns: int = 900) -> None:
        self.host_ns += self.chance.randint(least_ns, most_ns)

    def sync(self) -> None:
        self.host_ns = max(self.host_ns, self.gpu_ns) + 50

    @contextmanager
    def range(self, text: str, tid: int | None = None) -> Iterator[None]:
        self.host_ns += 10
        start_ns = self.host_ns
        yield
        self.host_ns += 10
        self.trace.nvtx(text, start_ns, self.host_ns, tid=tid)

    def _runs(self, took_ns: int, step: int) -> tuple[int, int]:
        start_ns = max(self.host_ns + self.chance.randint(30, 90), self.gpu_ns + 1)
        self.gpu_ns = start_ns + took_ns
        self.truth[start_ns], self.ends[start_ns] = step, self.gpu_ns
        return start_ns, self.gpu_ns

    def launch(
        self, name: str, step: int, *, took_ns: int | None = None, tid: int | None = None
    ) -> None:
        took_ns = self.chance.randint(100, 400) if took_ns is None else took_ns
        start_ns, end_ns = self._runs(took_ns, step)
        call = (self.host_ns, self.host_ns + 20) if self.api else None
        self.trace.kernel(name, start_ns=start_ns, end_ns=end_ns, launch=call, tid=tid)
        self.host_ns += self.chance.randint(25, 60)

    def replay(
        self,
        names: tuple[str, ...],
        step: int,
        *,
        graph: int = 1,
        mode: Literal["node", "graph"] = "node",
    ) -> None:
        nodes = [(name, *self._runs(self.chance.randint(100, 400), step)) for name in names]
        if mode == "graph":
            for _, start_ns, _ in nodes:
                del self.truth[start_ns], self.ends[start_ns]
            self.truth[nodes[0][1]], self.ends[nodes[0][1]] = step, nodes[-1][2]
        call = (self.host_ns, self.host_ns + 40)
        self.trace.graph_launch(nodes, launch=call, mode=mode, graph_exec_id=graph)
        self.host_ns += 60

    def layers(self, step: int, layers_n: int = 3, took_ns: int | None = None) -> None:
        for _ in range(layers_n):
            for name in LAYER_KERNELS:
                self.launch(name, step, took_ns=took_ns)


def vllm(seed: int, steps_n: int = 6) -> StepWorld:
    """Like vLLM under its CUDA profiler: other outermost ranges are as many, and longer."""
    world = StepWorld(seed)
    for step in range(steps_n):
        with world.range("schedule: allocate_slots"):
            world.idle(5_000, 9_000)
        requests, tokens = (1, 512) if step % 3 == 0 else (0, 0)
        name = f"execute_context_{requests}({tokens})_generation_{8 + step}({8 + step})"
        with world.range(name):
            with world.range("gpu_model_runner: preprocess"):
                world.launch("copy_inputs", step)
            with world.range("gpu_model_runner: forward"):
                world.layers(step)
        with world.range("gpu_model_runner: sample"):  # as with asynchronous scheduling
            world.launch("topk_topp", -1, took_ns=6_000)
            world.launch("argmax", -1, took_ns=9_000)
        world.idle()
    return world


def sglang(seed: int, steps_n: int = 6) -> StepWorld:
    """Like SGLang: spans of the model runner in ranges of the scheduler."""
    world = StepWorld(seed)
    for step in range(steps_n):
        with world.range("scheduler.recv_requests"):
            world.idle(3_000, 4_000)
        with world.range("scheduler.run_batch"):
            world.launch("gather_batch", -1)
            extend = world.chance.random() < 0.3
            name = f"step[EXTEND bs=1 toks={100 + step}]" if extend else f"step[DECODE bs={step}]"
            with world.range(f"{name}, op_id = {step}"):
                world.layers(step)
            world.launch("sampler", -1, took_ns=4_000)
        with world.range("scheduler.process_batch_result"):
            world.sync()
    return world


def tensorrt_llm(seed: int, steps_n: int = 6) -> StepWorld:
    """Like TensorRT-LLM's PyExecutor."""
    world = StepWorld(seed)
    for step in range(steps_n):
        for name in ("_fetch_new_requests", "_schedule", "prepare_resources"):
            with world.range(name):
                world.idle(3_000, 4_000)
        with world.range(f"[Executor] _forward_step {step}: {step % 2} ctx reqs, 7 gen reqs"):
            with world.range("_prepare_inputs"):
                world.launch("copy_inputs", step)
            world.layers(step)
        with world.range("_sample_async"):
            world.launch("sampling", -1, took_ns=9_000)
        with world.range("_update_requests"):
            world.sync()
    return world


def pytorch(seed: int, mark: str, steps_n: int = 6) -> StepWorld:
    """Like a training loop under emit_nvtx with one range of its own: operators are as many.

    Args:
        seed: Of chance.
        mark: Text of the range, with {step}.
        steps_n: How many.
    """
    world = StepWorld(seed)
    with world.range("main"):
        for step in range(steps_n):
            with world.range(mark.format(step=step)):
                for op in range(3):
                    with world.range(f"FlashAttnFunc, seq = {9 * step + op}, op_id = {op}"):
                        world.launch("flash_fwd", step, took_ns=5_000)
                    with world.range(f"aten::linear, op_id = {op}"):
                        world.launch("gemm", step, took_ns=1_000)
                # PyTorch's backward launches from a thread of its own.
                world.launch("gemm_backward", step, took_ns=1_000, tid=77)
            world.idle()
    return world


def optimizer(seed: int, steps_n: int = 5) -> StepWorld:
    """A training loop that marks nothing but what torch.optim does: step 0's begin is not known."""
    world = StepWorld(seed)
    for step in range(steps_n):
        for _ in range(world.chance.randint(4, 9)):
            world.launch(world.chance.choice(LAYER_KERNELS), step)
        with world.range("Optimizer.step#AdamW.step"):
            world.launch("multi_tensor_adam", step)
    return world


def fsdp(seed: int, passes_n: int = 2, blocks_n: int = 4) -> StepWorld:
    """Like FSDP's hooks: a layer is what lies between two; the last of a pass holds the head."""
    world = StepWorld(seed)
    layer = 0
    for _ in range(passes_n):
        for block in range(blocks_n):
            text = f"FSDP::pre_forward (blocks.{block}._checkpoint_wrapped_module), op_id = {layer}"
            with world.range(text):
                world.launch("all_gather", layer)
            for _ in range(world.chance.randint(3, 6)):
                world.launch(world.chance.choice(LAYER_KERNELS), layer)
            with world.range(f"FSDP::post_forward (blocks.{block}._checkpoint_wrapped_module)"):
                world.idle()
            layer += 1
        world.launch("head", layer - 1)
    return world


def graphs(
    seed: int, mode: Literal["node", "graph"] = "node", steps_n: int = 7, pieces_n: int = 1
) -> StepWorld:
    """Decoding by CUDA graphs, one or several a step, with eager work between."""
    world = StepWorld(seed)
    for _ in range(3):
        world.launch("prefill", -1)
    for step in range(steps_n):
        for piece in range(pieces_n):
            world.replay(LAYER_KERNELS * 2, step, graph=1 + piece, mode=mode)
            for _ in range(world.chance.randint(1, 3)):
                world.launch(f"eager_{world.chance.randint(0, 9)}", step)
        world.idle()
    return world


def kernels_only(seed: int, *, api: bool = True, steps_n: int = 8, layers_n: int = 4) -> StepWorld:
    """Decoding without NVTX and graphs: layers within steps, after a prefill of other kernels."""
    world = StepWorld(seed, api=api)
    for number in range(world.chance.randint(3, 9)):
        world.launch(f"prefill_{number}", -1)
    for step in range(steps_n):
        world.launch("embed", step)
        world.layers(step, layers_n)
        for name in HEAD_KERNELS[1:]:
            world.launch(name, step)
        world.idle(100, 3_000)
    return world
