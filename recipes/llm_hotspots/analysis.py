"""Where GPU time goes: every kernel's statistics, per rank and over all ranks, and its category.

Method. Each rank is reduced to integers: how often each kernel had each duration, and how much of
the device's busy time is its own. Over all ranks the counts add up, so that percentiles are those
of all launches together, not a median of medians. The time that k kernels share on a device is
split among them (see `nsys_llm.numeric.exclusive.exclusive_ns`), so exclusive times add up to the
union of all kernels, exactly. Categories come from ordered rules (see
`nsys_llm.taxonomy.categories`), applied to the demangled name whatever form is shown.

Limits. Kernel time is GPU time with node-level tracing's cost in it; kernels inside a CUDA graph
that was traced as a whole are not there (coverage says how many such launches there were).
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis

from .findings.answer import answer, caveats, findings
from .tables.tabulation import tabulate

ANALYSIS: Final = Analysis(
    needs=("operations",),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
)
