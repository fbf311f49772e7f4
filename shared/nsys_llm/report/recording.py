"""What to record next time, without what this time was traced already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.taxonomy.categories import detect_engine
from nsys_llm.taxonomy.step_names import recording_advice
from nsys_llm.trace.outcomes import ProfileOutcome

_TRACE: Final = "--trace="
#: Words of the flag, and what a capture that had them says.
_TRACED: Final = {"nvtx": "NvtxEvents", "cuda": "Cuda"}
#: Where no engine is known that marks its steps.
_ANY_ENGINE: Final = (
    "PyTorch marks its operators under nsys profile --pytorch=autograd-nvtx, and code of one's own "
    "with torch.cuda.nvtx.range_push"
)


def nvtx_was_traced(profiles: Iterable[ProfileOutcome]) -> bool:
    """Return whether all profiles that could be read traced NVTX, so that the flag adds nothing."""
    facts = [profile.facts for profile in profiles if profile.facts is not None]
    return bool(facts) and all(_TRACED["nvtx"] in some.traced for some in facts)


def engine_switch(profiles: Sequence[ProfileOutcome]) -> str:
    """Return what makes the engine whose kernels these are write NVTX ranges, as a clause."""
    walls = [rank.wall for profile in profiles for rank in profile.ranks]
    advice = recording_advice(detect_engine({name for wall in walls for name in wall.kernel_names}))
    return _ANY_ENGINE if advice is None else advice[1]


def without_traced(
    findings: Iterable[Finding], profiles: Sequence[ProfileOutcome]
) -> list[Finding]:
    """Return findings that advise the engine's switch where NVTX was traced."""
    every = list(findings)
    if not nvtx_was_traced(profiles):
        return every
    return [_without(finding, profiles) for finding in every]


def _without(finding: Finding, profiles: Sequence[ProfileOutcome]) -> Finding:
    flags = (finding.record or "").split(" ")
    if not any(flag.startswith(_TRACE) and "nvtx" in flag for flag in flags):
        return finding
    left = " ".join(filter(None, map(_remaining, flags)))
    if left:
        return replace(finding, record=left)
    switch = engine_switch(profiles)
    text = f"{finding.recommendation} NVTX was traced: {switch}."
    return replace(finding, record=None, recommendation=text)


def _remaining(flag: str) -> str:
    """Return a flag without what was traced; empty where nothing is left of it."""
    if not flag.startswith(_TRACE):
        return flag
    words = flag.removeprefix(_TRACE).split(",")
    # CUDA stands beside what else is asked for: that flag alone would end it.
    return flag.replace(",nvtx", "") if set(words) - set(_TRACED) else ""
