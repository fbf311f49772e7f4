"""A server whose steps replay CUDA graphs of a model with layers; each kernel's module is known.

world = ModelWorld(seed)
world.eager(marked=True)      # the warm-up ahead of the capture, in NVTX ranges of layers
world.replay(exec_id=3)       # a step
world.annotations()           # what torch.cuda.graph_annotations gives of it
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from trace_builder import TraceBuilder

#: Module in a layer, kernel, ns, line of the model's code. Two modules run the same kernel.
LAYER = (
    ("input_layernorm", "void at::native::vectorized_elementwise_kernel<4, Norm>(int)", 4_000, 41),
    ("self_attn.qkv_proj", "nvjet_tst_128x64_64x8_2x1_v_bz_TNT", 9_000, 52),
    ("self_attn.attn", "void flash_fwd_kernel<Traits<128, 64, 64>>(Params)", 21_000, 673),
    ("self_attn.o_proj", "nvjet_tst_64x64_64x8_2x1_v_bz_TNT", 6_000, 55),
    ("mlp.act_fn", "void at::native::vectorized_elementwise_kernel<4, Silu>(int)", 5_000, 80),
    ("mlp.down_proj", "nvjet_tst_64x64_64x8_2x1_v_bz_TNT", 8_000, 83),
)
HEAD = (("lm_head", "nvjet_tst_256x64_64x8_2x1_v_bz_TNT", 15_000, 201),)
SAMPLER = "void at::native::reduce_kernel<512, ArgMax>(int)"
FILES = "/opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/llama.py"


class ModelWorld:
    """A rank under construction.

    Attributes:
        truth: Time of kernels by the part of the model, numbers folded; None for no part.
        graph_ns: The same of kernels in graphs only.
    """

    def __init__(self, seed: int = 0, layers_n: int = 3) -> None:
        self.trace = TraceBuilder()
        self.chance = random.Random(seed)
        self.layers_n = layers_n
        self.truth: Counter[str | None] = Counter()
        self.host_ns, self.gpu_ns = 10_000, 10_000
        self.exec_ids: set[int] = set()

    def modules(self) -> list[tuple[str, str, int, int]]:
        """Return path, kernel, ns and line of each kernel of a forward pass, in order."""
        layers = [
            (f"model.layers.{number}.{module}", kernel, ns, line)
            for number in range(self.layers_n)
            for module, kernel, ns, line in LAYER
        ]
        return [*layers, *HEAD]

    def eager(self, *, marked: bool = True) -> None:
        """Run the model kernel by kernel, each in the layerwise range of its module."""
        for path, kernel, ns, _ in self.modules():
            start_ns = self.host_ns
            self._kernel(kernel, ns, path if marked else None)
            if marked:
                text = f"{{'Module': '{path}', 'Inputs': [[8, 4096]]}}"
                self.trace.nvtx(text, start_ns, self.host_ns)
            self.host_ns += 100

    def replay(self, exec_id: int, *, scale: int = 1, named: bool = True) -> None:
        """Run a step: a replay of an executable graph, then the sampler.

        Args:
            named: Whether the truth knows the parts of its kernels.
        """
        begin_ns = self.host_ns
        self.exec_ids.add(exec_id)
        correlation_id = self.trace.reserve_correlation_ids(1)
        launch = (self.host_ns, self.host_ns + 3_000)
        self.trace.api(
            "cudaGraphLaunch_v10000",
            start_ns=launch[0],
            end_ns=launch[1],
            correlation_id=correlation_id,
        )
        self.gpu_ns = max(self.gpu_ns, launch[1]) + 2_000
        for number, (path, kernel, ns, _) in enumerate(self.modules(), 1):
            ns = scale * ns + self.chance.randrange(400)
            self.trace.kernel(
                kernel,
                start_ns=self.gpu_ns,
                duration_ns=ns,
                correlation_id=correlation_id,
                graph_node_id=(exec_id << 32) | number,
            )
            self.gpu_ns += ns + 700
            self.truth[folded(path) if named else None] += ns
        self.host_ns = launch[1] + 1_000
        self._kernel(SAMPLER, 3_000, None)
        self.host_ns = self.gpu_ns + 2_000
        self.trace.nvtx("execute_context_0(0)_generation_8(8)", begin_ns, self.host_ns)
        self.host_ns += 1_000

    def annotations(self, *, hexadecimal: bool = False) -> dict[str, Any]:
        """Return the annotations of all nodes, with their stacks, by key."""
        said = {}
        for exec_id in sorted(self.exec_ids):
            for number, (path, _, _, line) in enumerate(self.modules(), 1):
                key = (exec_id << 32) | number
                said[hex(key) if hexadecimal else str(key)] = [
                    {
                        "name": path,
                        "stream": 7,
                        "phase": "forward",
                        "stack": [[FILES, line, "forward"], ["/srv/app/run.py", 9, "main"]],
                        "unknown": {"any": None},
                    }
                ]
        return said

    def _kernel(self, name: str, ns: int, path: str | None) -> None:
        ns += self.chance.randrange(400)
        start_ns = max(self.gpu_ns, self.host_ns + 4_000)
        launch = (self.host_ns + 100, self.host_ns + 1_600)
        self.trace.kernel(name, start_ns=start_ns, duration_ns=ns, launch=launch)
        self.gpu_ns, self.host_ns = start_ns + ns + 700, launch[1] + 100
        self.truth[folded(path) if path else None] += ns


def folded(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
