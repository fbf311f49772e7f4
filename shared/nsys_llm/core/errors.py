"""Everything that this package raises on purpose, and the exit codes.

Each message is one line that says what was found, where, and what to do. All exceptions pickle,
because a worker process or a Dask worker may raise them.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of a run. BAD_INPUT wins over INCOMPLETE, and that over GATE_FAILED."""

    DONE = 0
    GATE_FAILED = 1
    BAD_INPUT = 2
    INCOMPLETE = 3
    FAULT = 4


class NsysLlmError(Exception):
    """Base of all errors that are shown in one line; unhandled, they end with `exit_code`."""

    exit_code: ExitCode = ExitCode.FAULT

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(NsysLlmError):
    """The command line asks for something impossible; nothing was read or written."""

    exit_code = ExitCode.BAD_INPUT


class ProfileError(NsysLlmError):
    """One profile cannot be read. The other ranks go on without it."""

    exit_code = ExitCode.BAD_INPUT


class OutputError(NsysLlmError):
    """The result cannot be written where it should go; nothing was changed there."""

    exit_code = ExitCode.BAD_INPUT


class ManifestError(NsysLlmError):
    """A manifest, or a table checked against one, is not what it says. An internal error."""

    exit_code = ExitCode.FAULT
