"""The command line of the check of a GPU: `python -m fnx_cuda.check --help`."""

import sys

from fnx_cuda.check.command import main

if __name__ == "__main__":
    sys.exit(main())
