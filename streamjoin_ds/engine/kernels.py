"""Which kernels run: the compiled ones, or their NumPy twins."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from streamjoin_ds.engine import reference
from streamjoin_ds.errors import KernelError

__all__ = ["CHUNK_ROWS", "Kernels", "kernel_names", "load_kernels"]

# Pairs that are in the air at a time, at each step of a join; also the most rows of a result chunk.
CHUNK_ROWS = 262_144

_COMPILED = "streamjoin_ds._kernels"


@dataclass(frozen=True, slots=True)
class Kernels:
    """A kernel module and the implementation of it that is to run.

    Attributes
    ----------
    module : module
        ``streamjoin_ds._kernels`` or `streamjoin_ds.engine.reference`; both have the same names.
    implementation : str
        One of ``module.implementations()``.
    """

    module: Any
    implementation: str


def kernel_names() -> tuple[str, ...]:
    """Name every kernel that `load_kernels` takes here: "auto", what this CPU can run, and "reference"."""
    compiled = _compiled()
    return ("auto", *(compiled.implementations() if compiled else ()), "reference")


@lru_cache(maxsize=16)
def load_kernels(name: str = "auto") -> Kernels:
    """Find a kernel by name.

    Parameters
    ----------
    name : str
        "auto" is the compiled kernels' own choice, or the twin where they are not built, or where the environment
        variable STREAMJOIN_DS_KERNEL names another (a name given here wins over it).

    Raises
    ------
    KernelError
        A name that this CPU or this installation does not have.
    """
    if name == "auto":
        name = os.environ.get("STREAMJOIN_DS_KERNEL", "auto") or "auto"
    compiled = _compiled()
    if name == "reference" or (name == "auto" and compiled is None):
        return Kernels(reference, "reference")
    if compiled is not None and name == "auto":
        return Kernels(compiled, str(compiled.default_implementation()))
    if compiled is not None and name in compiled.implementations():
        return Kernels(compiled, name)
    msg = "this kernel is not one that can run here"
    raise KernelError(msg, name="kernel", hint=f"one of {', '.join(kernel_names())}")


@lru_cache(maxsize=1)
def _compiled() -> Any:
    try:
        return importlib.import_module(_COMPILED)
    except ModuleNotFoundError as error:
        if error.name != _COMPILED:
            raise
        return None
