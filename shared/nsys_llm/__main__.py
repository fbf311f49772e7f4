"""The command `nsys-llm` as `python -m nsys_llm`, where no folder of scripts is on the PATH."""

import sys

from nsys_llm.run.cli import main

if __name__ == "__main__":
    sys.exit(main())
