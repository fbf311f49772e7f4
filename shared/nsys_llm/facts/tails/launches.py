"""Kernels as launches of a name in a configuration: grid, block and dynamic shared memory.

Launches of one configuration in decoding graphs and in an eager prefill do other work: they are
groups of their own, by whether they are nodes of a CUDA graph and by the phase of their step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.numeric.grouping import distinct_codes, distinct_rows, positions
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.taxonomy.phase_maps import phase_map
from nsys_llm.trace.coded_names import coded_names, text_of
from nsys_llm.trace.device_ops import shown_name_ids
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.kernel_launches import GEOMETRY
from nsys_llm.trace.rank_trace import RankTrace

#: Columns of a configuration (design section 5).
CONFIG: Final = (*GEOMETRY, "dynamic_shared_bytes")

#: Shown name, whether it is communication (0 or 1), whether it is a node of a graph (0 or 1), phase
#: of its step ("" for none), and from `CONFIG_AT` on the values of `CONFIG`; NULL_INT for what the
#: report does not have.
Key = tuple[Any, ...]
CONFIG_AT: Final = 4

#: Column of kernels: position of the phase of their step in `_phase_texts`.
_PHASE: Final = "phase"


@dataclass(frozen=True)
class KeyedKernels:
    """Kernels of one rank in order of their starts, and what each of them launches.

    Attributes:
        keys: Distinct keys, sorted.
        key: Shape (kernels,), position in `keys`.
    """

    rows: Table
    keys: tuple[Key, ...]
    key: IntArray

    @cached_property
    def duration_ns(self) -> IntArray:
        """Duration of each."""
        return np.asarray(self.rows["end_ns"] - self.rows["start_ns"])

    def name_codes(self) -> IntArray:
        """Return a code of the name of each key, shape (keys,)."""
        names = [key[0] for key in self.keys]
        return positions(names, dict.fromkeys(names))

    def communicates(self) -> npt.NDArray[np.bool_]:
        """Return which keys are communication, shape (keys,)."""
        return np.array([bool(key[1]) for key in self.keys], dtype=bool)


def coded_launches(
    trace: RankTrace, steps: Steps | None, options: Mapping[str, Any]
) -> tuple[KeyedKernels, KeyedKernels]:
    """Return the kernels that the filters leave, and all of the rank; keys mean the same in both.

    Args:
        steps: Its steps; None where there are none.
        options: base and mangled choose the names, phase_map the phases.
    """
    kernels = trace.unfiltered["kernels"]
    phase = _phases(len(kernels), steps, options)
    every = _by_start(kernels.plus(**{_PHASE: phase}))
    if trace.tables["kernels"] is kernels:
        whole = _coded(every, trace.strings, options)
        return whole, whole
    kept = _by_start(trace.tables["kernels"].plus(**{_PHASE: phase[trace.kept["kernels"]]}))
    columns = {name: np.concatenate((every[name], kept[name])) for name in every.columns}
    both = _coded(Table(columns), trace.strings, options)
    kept_key, every_key = both.key[len(every) :], both.key[: len(every)]
    return KeyedKernels(kept, both.keys, kept_key), KeyedKernels(every, both.keys, every_key)


def config_text(key: Key) -> str:
    """Return the group of a key as people write it: `132x1x1 / 384x1x1 / 1024 B / graph / decode`.

    What there is not is left out: dynamic shared memory, a graph, a phase.
    """
    sizes = ["?" if value == NULL_INT else str(value) for value in key[CONFIG_AT:]]
    parts = ["x".join(sizes[:3]), "x".join(sizes[3:6])]
    parts += [f"{sizes[6]} B"] if sizes[6] not in ("0", "?") else []
    return " / ".join([*parts, *(["graph"] if key[2] else []), *([key[3]] if key[3] else [])])


def _phases(kernels_n: int, steps: Steps | None, options: Mapping[str, Any]) -> IntArray:
    """Return the phase of the step of each kernel, in `_phase_texts`; shape (kernels,)."""
    none: IntArray = np.broadcast_to(np.int64(0), (kernels_n,))
    if steps is None:
        return none
    phases, texts = phase_map(options.get("phase_map")), _phase_texts(options)
    place = [texts.index(text) for text in (*phases.phases, "")]
    of_step = np.array([place[code] for code in (*phases.codes(steps.names), -1)])
    # Steps hold all operations table by table: kernels are the first.
    return of_step[steps.step[:kernels_n]] if of_step.any() else none


def _phase_texts(options: Mapping[str, Any]) -> list[str]:
    """Return the phases that there are in order; the first, "", is none."""
    return sorted({"", *phase_map(options.get("phase_map")).phases})


def _by_start(kernels: Table) -> Table:
    starts = kernels["start_ns"]
    if (starts[1:] >= starts[:-1]).all():
        return kernels
    return kernels.take(np.argsort(starts, kind="stable"))


def _coded(kernels: Table, strings: Mapping[int, str], options: Mapping[str, Any]) -> KeyedKernels:
    names, name = coded_names(shown_name_ids(kernels, options), strings)
    used, full = distinct_codes(kernels["demangled_name_id"])
    reported = [is_communication(text_of(key, strings)) for key in used.tolist()]
    talks = np.array(reported, dtype=np.int64)[full]
    node = is_graph_node(kernels).astype(np.int64)
    columns = [name, talks, node, kernels[_PHASE], *(kernels[column] for column in CONFIG)]
    first, key = distinct_rows(columns)
    code, talked, nodes, phase, *config = (column[first].tolist() for column in columns)
    texts = _phase_texts(options)
    named, phased = [names[at] for at in code], [texts[at] for at in phase]
    keys = zip(named, talked, nodes, phased, *config, strict=True)
    return KeyedKernels(kernels, tuple(keys), key)
