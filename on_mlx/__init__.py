"""What runs in the environment of envs/mlx.txt: dflash-mlx itself, asked for figures that the pipeline compares.

These modules import MLX, dflash-mlx and the standard library alone, nothing of the pipeline, and run on Apple Silicon
as well as on MLX's CPU backend under Linux. The pipeline starts them as programs (:mod:`scripts.mlx_env`): each writes
its result, or ``{"error": ...}`` where dflash-mlx refused, as JSON to standard output.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any


def said(work: Callable[[], dict[str, Any]]) -> int:
    """Print what ``work`` gives, or what went wrong, as JSON; what libraries print meanwhile goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            result = work()
        except Exception as error:  # whatever dflash-mlx says is the answer
            result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result))
    return 1 if "error" in result else 0
