"""Where the command `nsys-llm` begins: imports that can be interrupted without a word.

Nothing but the standard library is imported before an interrupt can be caught.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line; see `nsys_llm.run.cli.main`."""
    _fill_closed()
    try:
        from nsys_llm.run.cli import main as run

        return run()
    except KeyboardInterrupt:
        # Outside of the run: before it began, or after its results were published.
        print("error: interrupted.", file=sys.stderr)
        return 130


def _fill_closed() -> None:
    """Put /dev/null where a standard stream is closed.

    Else the next file that is opened takes its number, and children print into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    sys.exit(main())
