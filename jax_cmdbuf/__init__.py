"""See, simulate and steer how XLA:GPU records JAX programs into command buffers.

Public names are loaded on first use, so that importing the package imports neither JAX nor CUDA.
"""

from __future__ import annotations

__version__ = "0.1.0"
