"""``python -m jax_cmdbuf`` is the ``jax-cmdbuf`` command."""

from __future__ import annotations

import sys

from jax_cmdbuf.cli import main

if __name__ == "__main__":
    sys.exit(main())
