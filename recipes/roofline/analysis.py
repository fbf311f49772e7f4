"""How far each step, and each GEMM, is from what the hardware can do.

Method. Three sources, never mixed. The shapes of PyTorch's operators give the FLOPs of single
products. A model's config and the batch in the name of a server's step, or the tokens of a training
step, give the FLOPs and bytes that the model needs on one GPU. GPU metrics give the share of the
memory's peak that categories of kernels use. Each is divided by peaks of the GPU from its data
sheet, by its exact name; what cannot be told is null, with the reason.

Limits. Model FLOPs are those that the model needs: what is computed again, padded or dropped is not
in them. MIG and a capped power are not seen. No FLOPs come from names or grids of kernels.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis

from .findings.answer import answer, caveats, findings, screen
from .tables.tabulation import tabulate

ANALYSIS: Final = Analysis(
    needs=("roofline",),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
    screen=screen,
)
