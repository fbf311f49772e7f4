"""In which of its steps a run is slower or faster than the other one, where that is not all."""

from __future__ import annotations

from typing import Final

from nsys_llm.numeric.when import STEADY, courses, level_words

from .step_verdict import CHANGED, FASTER, SLOWER, UNCERTAIN, StepVerdict

#: Part of the change that steps without it may have.
_USUAL: Final = 0.25


def since_words(verdict: StepVerdict) -> str | None:
    """Return it as `slower from step 40 on`; None where steps are alike, or stand by GPU."""
    figure = verdict.figure
    # A change amid a run makes its steps alike, and the mean of all uncertain.
    if figure is None or verdict.looks is None or verdict.word not in CHANGED | {UNCERTAIN}:
        return None
    word = SLOWER if figure.change > 0 else FASTER
    means_ns = figure.chosen[0].cell_means_ns()
    sign = 1.0 if word == SLOWER else -1.0
    before, after = (sign * side.relative(means_ns) for side in figure.chosen)
    if any((side.steps.gpu >= 0).any() for side in figure.chosen):
        return None
    (earlier,), (course,) = courses(before[None], 1.0), courses(after[None], 1.0)
    if earlier.kind != STEADY or not course.steps.size:
        return None
    change = float(course.excess[course.steps].mean())
    if abs(course.usual - sign) > _USUAL * change:
        return None
    number = figure.chosen[1].steps.number[figure.chosen[1].kept][course.steps]
    words = level_words(course.kind, int(number[0]), int(number[-1]))
    return words and f"{word.lower()} {words}"
