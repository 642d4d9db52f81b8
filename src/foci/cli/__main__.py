"""`python -m foci.cli`: the same as the program `foci`, which starts faster (see `foci_cli`)."""

import sys

from foci_cli import main

if __name__ == "__main__":
    sys.exit(main())
