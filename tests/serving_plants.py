"""Planted servers: what each step holds is known, and when its work ran.

    server = Server("vllm_sums", graphs=(1, 2, 4, 8), empty_ns=3_000_000)
    run = server.run(seed)
    run.write(path); run.steps[5].fields["gen_reqs"]

The host schedules, opens the range of a step, launches, and waits once a step for the one before
(`ahead`) or for its own work. The GPU runs what was launched in order, later. A step takes
`base + row * rows + token * ctx_tokens + key * g_sk + pair * c_sqsk` ns in kernels; rows are those
of the captured graph, else the tokens that generate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from trace_builder import TraceBuilder

FIELDS = (
    *("ctx_reqs", "ctx_tokens", "c_sk", "c_sqsq", "c_sqsk"),
    *("gen_reqs", "gen_tokens", "g_sk", "g_sqsq", "g_sqsk"),
)
#: What each format tells.
TOLD = {
    "vllm": ("ctx_reqs", "ctx_tokens", "gen_reqs", "gen_tokens"),
    "vllm_sums": FIELDS,
    "vllm_new": (),
    "sglang": ("ctx_reqs", "ctx_tokens", "gen_reqs", "gen_tokens"),
    "sglang_sums": FIELDS,
    "trtllm": ("ctx_reqs", "gen_reqs", "gen_tokens"),
    "trtllm_tokens": ("ctx_reqs", "ctx_tokens", "gen_reqs", "gen_tokens"),
}
LAYERS_N = 4
NORM, GEMM = "vllm::rms_norm_kernel", "sm90_xmma_gemm_bf16_tn_n"
ATTENTION, ACTIVATION = "flash_fwd_splitkv_kernel", "vllm::act_and_mul_kernel"
SAMPLER = "topk_topp_sampling_kernel"
SAMPLER_ROW_NS = 200
_GAP_NS, _LATENCY_NS = 500, 2_000
_NODE_CALL_NS, _GRAPH_CALL_NS = 3_000, 9_000


@dataclass(frozen=True)
class Server:
    """What a server is like.

    Attributes:
        engine: A format of `TOLD`.
        steps_n: Steps, the drafts beside.
        slots_n: Requests at once.
        arrivals: Chance of a new request in each step.
        prompt: Least and most tokens of one.
        output: Likewise.
        chunk: Tokens of prompts in a step.
        graphs: Sizes that are captured, for steps without context; none: every launch by itself.
        width: Tokens that each request computes in a step: above 1 drafts are verified.
        accept: Chance that a draft is accepted; below 0: each number is as likely.
        plain: Chance that a step verifies no drafts.
        draft_ns: Of the draft model, a token.
        empty_ns: How long nobody comes once all requests are done.
        before_ns: Of the host before each step.
        inside_ns: Of the host in each step, before the first launch.
        launch_ns: Of the host before each launch of a step with context.
        noise: Relative spread of kernels.
        costs: ns: base, row, token, key, pair.
        unparsed: Share of steps whose name is of no format.
        ahead: Whether the host waits for the step before, not for its own.
        apart: Whether others wait while prompts are read, in steps of their own.
        pause_ns: Of the host, once: in a step that reads a prompt, or in the 60th where none does.
    """

    engine: str = "vllm_sums"
    steps_n: int = 120
    slots_n: int = 8
    arrivals: float = 0.15
    prompt: tuple[int, int] = (40, 500)
    output: tuple[int, int] = (15, 60)
    chunk: int = 256
    graphs: tuple[int, ...] = ()
    width: int = 1
    accept: float = -1.0
    plain: float = 0.0
    draft_ns: int = 9_000
    empty_ns: int = 0
    before_ns: int = 8_000
    inside_ns: int = 0
    launch_ns: int = 0
    noise: float = 0.003
    costs: tuple[float, ...] = (600_000, 3_000, 900, 4.0, 0.02)
    unparsed: float = 0.0
    ahead: bool = True
    apart: bool = False
    pause_ns: int = 0

    def run(self, seed: int) -> Run:
        return _Maker(self, seed).made()


@dataclass
class Step:
    """One step, or one draft.

    Attributes:
        name: Of its range.
        fields: What is in its batch.
        begin_ns: Of its range, and `end_ns`.
        ops: Start and end of what was launched in it.
        graph: Size of the graph that it replays; 0 for none.
        accepted_n: Tokens that its requests keep.
        stay_n: Requests that have a token of it, the first or another, and wait for one more.
        draft: Whether it is a draft.
        parsed: Whether its name is of a format.
        new_n: Requests in it for the first time.
    """

    name: str
    fields: dict[str, int]
    begin_ns: int
    end_ns: int = 0
    ops: list[tuple[int, int]] = field(default_factory=list)
    graph: int = 0
    accepted_n: int = 0
    stay_n: int = 0
    draft: bool = False
    parsed: bool = True
    new_n: int = 0

    @property
    def phase(self) -> str:
        context, generates = self.fields["ctx_reqs"], self.fields["gen_reqs"]
        return "mixed" if context and generates else "prefill" if context else "decode"

    @property
    def is_all_new(self) -> bool:
        """Whether nobody is in it who was in a step before."""
        return self.new_n == self.fields["ctx_reqs"] and not self.fields["gen_reqs"]


@dataclass
class Run:
    """What a server did."""

    server: Server
    trace: TraceBuilder
    every: list[Step]
    ops: list[tuple[int, int]]
    empty: list[tuple[int, int]]

    @property
    def steps(self) -> list[Step]:
        return [step for step in self.every if not step.draft]

    def told(self, step: Step) -> dict[str, int | None]:
        """Return the fields as the name tells them."""
        fields: dict[str, int | None] = dict.fromkeys(FIELDS)
        known = set(TOLD[self.server.engine]) if step.parsed else set()
        if self.server.engine == "vllm_new" and step.is_all_new:
            known = {"ctx_reqs", "gen_reqs"}
        if self.server.engine == "sglang" and step.phase == "mixed":
            known = set()
        zero = {"ctx_reqs": FIELDS[:5], "gen_reqs": FIELDS[5:]}
        for requests, names in zero.items():
            if requests in known and not step.fields[requests]:
                known |= set(names)
        if self.server.width > 1 and "sums" not in self.server.engine and step.fields["gen_reqs"]:
            known.discard("gen_tokens")
        return fields | {name: step.fields[name] for name in known}

    def named_phase(self, step: Step) -> str:
        """Return the phase by the name of a step, which may call prompts that go on cached."""
        if self.server.engine != "vllm_new" or step.is_all_new:
            return step.phase
        return "mixed" if step.new_n else "decode"

    def write(self, path: Path) -> Path:
        return self.trace.write_sqlite(path)


class _Maker:
    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.rng = server, np.random.default_rng(seed)
        self.host_ns, self.gpu_ns, self.pause_ns = 10_000, 5_000, server.pause_ns
        self.width = server.width
        self.every: list[Step] = []
        self.ops: list[tuple[int, int]] = []
        self.empty: list[tuple[int, int]] = []
        self.generating: list[list[int]] = []  # keys, tokens left
        self.reading: list[list[int]] = []  # keys, prompt left, tokens to come
        self.kernels: list[tuple[Any, ...]] = []
        self.trace = TraceBuilder(hostname="node").process(pid=1, name="server")

    def made(self) -> Run:
        last_end_ns = 0
        for number in range(self.server.steps_n):
            self._arrive()
            ended_ns = self._step(number)
            self._wait(last_end_ns if self.server.ahead and self.generating else ended_ns)
            last_end_ns = ended_ns
        self._write()
        return Run(self.server, self.trace, self.every, self.ops, self.empty)

    def _arrive(self) -> None:
        """Take new requests; if nobody is there, wait until somebody comes."""
        server, busy = self.server, self.generating or self.reading
        if not busy and self.every and server.empty_ns:
            free_ns = max(self.host_ns, self.gpu_ns)
            self.host_ns += round(server.empty_ns * self.rng.uniform(0.7, 1.3))
            self.empty.append((free_ns, self.host_ns + server.before_ns + 200))
        free = len(self.generating) + len(self.reading) < server.slots_n
        if not busy or (free and self.rng.random() < server.arrivals):
            prompt, output = (
                int(self.rng.integers(*server.prompt)),
                int(self.rng.integers(*server.output)),
            )
            self.reading.append([0, prompt, output])

    def _step(self, number: int) -> int:
        server = self.server
        self.trace.nvtx("schedule", self.host_ns + 100, self.host_ns + 100 + server.before_ns)
        self.host_ns += server.before_ns + 200
        if server.plain:
            self.width = 1 if self.rng.random() < server.plain else server.width
        if self.width > 1 and self.generating and not (server.apart and self.reading):
            self._draft(number)
        fields, chunks = self._batch()
        step = Step("", fields, self.host_ns)
        step.parsed = self.rng.random() >= server.unparsed
        step.new_n = sum(not keys for keys, *_ in self.reading[: fields["ctx_reqs"]])
        step.name = _name(server, fields, number, step)
        self.every.append(step)
        self.host_ns += 50
        self._launch_all(step)
        self.host_ns += 50
        step.end_ns = self.host_ns
        self.host_ns += 100
        self.trace.nvtx(step.name, step.begin_ns, step.end_ns)
        self._generate(step)
        self._read(chunks)
        step.stay_n = len(self.generating)
        self._kernel(
            None, SAMPLER, 3_000 + SAMPLER_ROW_NS * fields["gen_reqs"], 1
        )  # outside of the range
        return self.gpu_ns

    def _batch(self) -> tuple[dict[str, int], list[int]]:
        left, chunks = self.server.chunk, []
        for _, prompt, _ in self.reading:
            chunks.append(min(left, prompt))
            left -= chunks[-1]
        context = [(n, keys + n) for n, (keys, _, _) in zip(chunks, self.reading, strict=True) if n]
        width = self.width
        served = [] if self.server.apart and context else self.generating
        generate = [(width, keys + width) for keys, _ in served]
        fields: dict[str, int] = {}
        for kind, sums, pairs in (("ctx", "c", context), ("gen", "g", generate)):
            fields |= {f"{kind}_reqs": len(pairs), f"{kind}_tokens": sum(q for q, _ in pairs)}
            fields |= {
                f"{sums}_sk": sum(k for _, k in pairs),
                f"{sums}_sqsq": sum(q * q for q, _ in pairs),
                f"{sums}_sqsk": sum(q * k for q, k in pairs),
            }
        return fields, chunks

    def _generate(self, step: Step) -> None:
        for request in self.generating if step.fields["gen_reqs"] else ():
            accepted = int(self.rng.integers(1, self.width + 1))
            if self.server.accept >= 0:
                accepted = 1 + int(self.rng.binomial(self.width - 1, self.server.accept))
            step.accepted_n += accepted
            request[0] += accepted
            request[1] -= accepted
        self.generating = [request for request in self.generating if request[1] > 0]

    def _read(self, chunks: list[int]) -> None:
        for request, chunk in zip(self.reading, chunks, strict=True):
            request[0] += chunk
            request[1] -= chunk
        self.generating += [[keys, out] for keys, left, out in self.reading if left == 0]
        self.reading = [request for request in self.reading if request[1]]

    def _draft(self, number: int) -> None:
        sglang = self.server.engine.startswith("sglang")
        name = f"step[DECODE bs={len(self.generating)}]" if sglang else "gpu_model_runner: draft"
        step = Step(name, {}, self.host_ns, draft=True)
        if sglang:
            self.every.append(step)
        for _ in range(self.width - 1):
            self.host_ns += 20
            self._kernel(step, "draft_gemm_kernel", self.server.draft_ns, 1)
        step.end_ns = self.host_ns + 20
        self.host_ns += 100
        self.trace.nvtx(step.name, step.begin_ns, step.end_ns)

    def _launch_all(self, step: Step) -> None:
        server, fields = self.server, step.fields
        self.host_ns += server.inside_ns
        if len(self.every) >= 60 and (step.phase == "mixed" or not server.arrivals):
            self.host_ns, self.pause_ns = self.host_ns + self.pause_ns, 0
        base, row, token, key, pair = server.costs
        tokens = fields["gen_tokens"]
        sizes = [size for size in server.graphs if size >= tokens and not fields["ctx_tokens"]]
        step.graph = min(sizes, default=0)
        rows = step.graph or tokens
        shares = {
            NORM: 0.05 * base,
            GEMM: 0.6 * base + row * rows + token * fields["ctx_tokens"],
            ATTENTION: 0.3 * base + key * fields["g_sk"] + pair * fields["c_sqsk"],
            ACTIVATION: 0.05 * base,
        }
        grid = rows + fields["ctx_tokens"]
        grids = {NORM: grid, ACTIVATION: grid}
        nodes = [(name, ns / LAYERS_N, grids.get(name, 7)) for name, ns in shares.items()]
        nodes = [(name, self._taken(ns), grid) for name, ns, grid in nodes * LAYERS_N]
        if step.graph:
            self._graph(step, nodes)
            return
        for name, ns, blocks in nodes:
            self.host_ns += server.launch_ns if fields["ctx_reqs"] else 0
            self._kernel(step, name, ns, blocks)

    def _taken(self, ns: float) -> int:
        return max(round(ns * (1 + self.server.noise * self.rng.standard_normal())), 1)

    def _runs(self, step: Step | None, took_ns: int) -> tuple[int, int]:
        start_ns = max(self.host_ns + _LATENCY_NS, self.gpu_ns + _GAP_NS)
        self.gpu_ns = start_ns + took_ns
        self.ops.append((start_ns, self.gpu_ns))
        if step is not None:
            step.ops.append((start_ns, self.gpu_ns))
        return start_ns, self.gpu_ns

    def _kernel(self, step: Step | None, name: str, took_ns: int, blocks: int) -> None:
        call = self.host_ns, self.host_ns + _NODE_CALL_NS
        self.host_ns = call[1]
        identity = self.trace.reserve_correlation_ids(1)
        self.trace.api("cudaLaunchKernel_v7000", start_ns=call[0], end_ns=call[1],
                       correlation_id=identity)  # fmt: skip
        self.kernels.append((name, *self._runs(step, took_ns), blocks, identity, 0))
        self.host_ns += 200

    def _graph(self, step: Step, nodes: list[tuple[str, int, int]]) -> None:
        call = self.host_ns, self.host_ns + _GRAPH_CALL_NS
        self.host_ns = call[1]
        identity = self.trace.reserve_correlation_ids(1)
        self.trace.api("cudaGraphLaunch_v10000", start_ns=call[0], end_ns=call[1],
                       correlation_id=identity)  # fmt: skip
        for place, (name, ns, blocks) in enumerate(nodes):
            node = (step.graph << 32) + place + 1
            self.kernels.append((name, *self._runs(step, ns), blocks, identity, node))
        self.host_ns += 200

    def _wait(self, until_ns: int) -> None:
        end_ns = max(self.host_ns, until_ns) + 1_000
        self.trace.api("cudaEventSynchronize_v3020", start_ns=self.host_ns, end_ns=end_ns)
        self.host_ns = end_ns + 300

    def _write(self) -> None:
        names = sorted({row[0] for row in self.kernels})
        column = list(zip(*self.kernels, strict=True))
        self.trace.kernels(
            names,
            [names.index(name) for name in column[0]],
            start_ns=column[1],
            end_ns=column[2],
            grid=[(blocks, 1, 1) for blocks in column[3]],
            correlation_ids=column[4],
            graph_node_ids=column[5],
        )


def _name(server: Server, fields: dict[str, int], number: int, step: Step) -> str:
    value = fields
    context, generating = value["ctx_reqs"], value["gen_reqs"]
    engine = server.engine
    if engine == "vllm":
        name = (f"execute_context_{context}({value['ctx_tokens']})"
                f"_generation_{generating}({value['gen_tokens']})")  # fmt: skip
    elif engine == "vllm_sums":
        sums = [
            f"sq{value[f'{kind}_tokens']}sk{value[f'{key}_sk']}sqsq{value[f'{key}_sqsq']}"
            f"sqsk{value[f'{key}_sqsk']}"
            for kind, key in (("ctx", "c"), ("gen", "g"))
        ]
        name = (f"execute_{context + generating}_context_{context}({sums[0]})"
                f"_generation_{generating}({sums[1]})")  # fmt: skip
    elif engine == "vllm_new":
        name = f"execute_new_{step.new_n}_cached_{context - step.new_n + generating}"
    elif engine.startswith("trtllm"):
        tokens = f"{value['ctx_tokens']} ctx tokens, " if engine == "trtllm_tokens" else ""
        name = f"[Executor] _forward_step {number}: {context} ctx reqs, {tokens}"
        name += f"{generating} gen reqs"
    else:
        name = _sglang(server, fields)
    if not step.parsed:
        name = (
            name.replace("generation", "decode")
            .replace("step[", "step[X")
            .replace("gen reqs", "gen")
        )
    return f"{name}, op_id = {number}" if engine.startswith("sglang") else name


def _sglang(server: Server, fields: dict[str, int]) -> str:
    context, generating = fields["ctx_reqs"], fields["gen_reqs"]
    sums = ""
    if server.engine == "sglang_sums":
        for key, kind in (("c", "ctx"), ("g", "gen")):
            if not fields[f"{kind}_reqs"]:
                continue
            if context and generating:
                sums += f" {key}={fields[f'{kind}_reqs']}"
            sums += f" {key}_sq={fields[f'{kind}_tokens']}"
            sums += "".join(f" {key}_{of}={fields[f'{key}_{of}']}" for of in ("sqsq", "sqsk", "sk"))
    if context and generating:
        return f"step[MIXED bs={context + generating}{sums}]"
    if context:
        return f"step[EXTEND bs={context} toks={fields['ctx_tokens']}{sums}]"
    return f"step[{'TARGET_VERIFY' if server.width > 1 else 'DECODE'} bs={generating}{sums}]"
