"""Keeps what goes wrong with one profile, or one of its ranks, from stopping the others."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from nsys_llm.core.errors import ProfileError, UsageError
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.trace.outcomes import ProfileOutcome


class Boundary:
    """Around the work on one profile.

    Attributes:
        failure: What went wrong; None while nothing has.
    """

    def __init__(self, profile: ProfileInput) -> None:
        self._profile = profile
        self.failure: ProfileOutcome | None = None

    def __enter__(self) -> Boundary:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Keep what goes wrong as the profile's failure."""
        if isinstance(error, UsageError):
            return False  # nothing that another profile would not meet
        if isinstance(error, ProfileError):
            self.failure = self._failed(error.message)
        elif isinstance(error, MemoryError):
            self.failure = self._failed(
                f"{self._profile.label}: needs more memory than is available; read fewer profiles "
                "at a time (--mode none), or a part of this one (--filter-time)."
            )
        elif isinstance(error, Exception):
            # Not the profile's fault as far as we know: it is told as ours, and ends in exit 4.
            words = " ".join(str(error).split())[:200]
            kind_name = type(error).__name__
            reason = (
                f"{self._profile.label}: internal error of nsys-llm-recipes ({kind_name}: {words})."
            )
            self.failure = self._failed(reason, _where(error))
        return self.failure is not None

    def _failed(self, reason: str, fault: str | None = None) -> ProfileOutcome:
        # Outputs name no folders of this machine, and libraries do.
        reason = reason.replace(f"{Path(self._profile.path).parent}{os.sep}", "")
        # A file's name may hold bytes that are no text; tables and JSON take text only.
        reason = reason.encode("utf-8", "backslashreplace").decode("utf-8")
        return ProfileOutcome(
            self._profile.path,
            self._profile.label,
            None,
            reason=reason,
            fault=fault,
            side=self._profile.side,
        )


def _where(error: Exception) -> str:
    """Return the frames of an error without the folders that this machine keeps its code in."""
    frames = traceback.extract_tb(error.__traceback__)
    return "\n".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
