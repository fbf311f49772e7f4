"""How many FLOPs does a step compute on one GPU, and how many bytes does it read? Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.manifest.model_config import BYTES, ModelConfig

Floats = npt.NDArray[np.float64]
#: Forward and twice as much backward.
_TRAINING: Final = 3.0


@dataclass(frozen=True)
class ModelLayout:
    """Over how many GPUs a model is spread.

    Attributes:
        tp: Ranks of tensor parallelism.
        ep: Of expert parallelism; None where experts are spread as all else is.
    """

    tp: int = 1
    ep: int | None = None

    @property
    def groups(self) -> float:
        """Batches of how many ranks meet in an expert."""
        return 1.0 if self.ep is None else max(self.ep / self.tp, 1.0)


@dataclass(frozen=True)
class Batch:
    """What steps compute; arrays of shape (steps,).

    Attributes:
        tokens: New tokens, T.
        outputs: Rows of which the head computes: one a request that reads, all that generate.
        keys: Sum of keys, the new ones included; NaN where not told.
        pairs: Query-key pairs under the causal mask; NaN where not told.
    """

    tokens: Floats
    outputs: Floats
    keys: Floats
    pairs: Floats


def causal_pairs(tokens: Any, squares: Any, products: Any) -> Any:
    """Return pairs of query and key: products of new tokens and keys less what is masked."""
    return products - (squares - tokens) / 2


def parameters(model: ModelConfig) -> float:
    """Return P + V h of a whole model: all weights but the table of embeddings, all experts."""
    sizes = _Sizes.of(model, ModelLayout())
    experts = 0.0 if model.experts is None else sizes.expert * model.experts.experts_n
    return sizes.attention + sizes.keys + sizes.dense + sizes.router + experts + sizes.head


def stored_bytes(model: ModelConfig, layout: ModelLayout) -> float:
    """Return the bytes of the weights that one GPU holds."""
    sizes, experts = _Sizes.of(model, layout), 0.0
    if model.experts is not None:
        held = sizes.expert * model.experts.experts_n / (layout.ep or layout.tp)
        experts = model.expert_bytes * held
    return _always_bytes(model, sizes) + experts


def _always_bytes(model: ModelConfig, sizes: _Sizes) -> float:
    """Return the bytes of all weights but those of routed experts."""
    attention = model.attention_bytes * sizes.attention + model.keys_bytes * sizes.keys
    plain = BYTES[model.dtype] * (sizes.router + sizes.head)
    return attention + model.weight_bytes * sizes.dense + plain


def read_bytes(model: ModelConfig, layout: ModelLayout, batch: Batch, kv_bytes: float) -> Floats:
    """Return the bytes that steps read, of one GPU: weights once, keys and values.

    With experts those that uniform routing reaches, which is the most; without told keys at least.
    """
    sizes = _Sizes.of(model, layout)
    experts: Any = 0.0
    if model.experts is not None:
        reached = distinct_experts(model, batch.tokens * layout.groups)
        experts = model.expert_bytes * sizes.expert * reached / (layout.ep or layout.tp)
    kv = 2 * kv_bytes * model.layers_n * model.kv_heads_n * model.head_dim
    kv_read = kv * (batch.keys + batch.tokens) / min(layout.tp, model.kv_heads_n)
    return np.asarray(
        _always_bytes(model, sizes) + experts + np.nan_to_num(kv_read) + 0.0 * batch.tokens
    )


def distinct_experts(model: ModelConfig, tokens: Floats) -> Floats:
    """Return how many experts of a layer some tokens reach, expected of uniform routing."""
    assert model.experts is not None
    n, chosen = model.experts.experts_n, model.experts.chosen_n
    return np.asarray(n * (1.0 - (1.0 - chosen / n) ** tokens))


def step_flops(model: ModelConfig, layout: ModelLayout, batch: Batch) -> Floats:
    """Return the FLOPs of steps on one GPU; without those of attention where pairs are not told."""
    sizes = _Sizes.of(model, layout)
    dense = sizes.attention + sizes.keys + sizes.dense + sizes.router
    flops = 2 * batch.tokens * dense + 2 * batch.outputs * sizes.head
    if model.experts is not None:
        gone = batch.tokens * layout.groups * model.experts.chosen_n
        flops = flops + 2 * gone * sizes.expert / (layout.ep or layout.tp)
    width = model.heads_n * model.head_dim
    pairs = np.nan_to_num(batch.pairs)
    return np.asarray(flops + 4 * model.layers_n * width * pairs / layout.tp)


def training_flops(
    model: ModelConfig, layout: ModelLayout, tokens: float, length: int | None
) -> float:
    """Return the FLOPs of a training step on one GPU; without a length those of no attention.

    Args:
        tokens: Of one replica.
        length: Of a sequence.
    """
    pairs = np.nan if length is None else tokens * (length + 1) / 2
    one = [np.array([value], dtype=np.float64) for value in (tokens, tokens, np.nan, pairs)]
    return float(_TRAINING * step_flops(model, layout, Batch(*one))[0])


@dataclass(frozen=True)
class _Sizes:
    """Weights of one GPU, all layers together; `expert` is of one routed expert, undivided.

    `attention` are those of queries and output, `keys` of keys and values.
    """

    attention: float
    keys: float
    dense: float
    router: float
    expert: float
    head: float

    @classmethod
    def of(cls, model: ModelConfig, layout: ModelLayout) -> _Sizes:
        h, tp, matrices = model.hidden, layout.tp, 3 if model.is_gated else 2
        keys = 2 * h * model.kv_heads_n * model.head_dim / min(tp, model.kv_heads_n)
        queries = 2 * h * model.heads_n * model.head_dim / tp
        experts, sparse_n, size, router, expert = model.experts, 0, 0, 0, 0
        if experts is not None:
            sparse_n, size = len(experts.layers), experts.shared_size
            router = sparse_n * h * experts.experts_n
            expert = sparse_n * matrices * h * experts.size
        rows = (model.layers_n - sparse_n) * model.intermediate + sparse_n * size
        return cls(
            model.layers_n * queries,
            model.layers_n * keys,
            matrices * h * rows / tp,
            router,
            expert,
            model.vocabulary * h / tp,
        )
