"""`python -m xla_flags`: the command line."""

import sys

from xla_flags.cli import main

if __name__ == "__main__":
    sys.exit(main())
