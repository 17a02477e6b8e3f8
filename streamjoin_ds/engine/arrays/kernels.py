"""Which kernels run: the compiled ones, or their NumPy twins."""

from __future__ import annotations

import importlib
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
        ``streamjoin_ds._kernels.native`` or `streamjoin_ds.engine.reference`; both have the same names.
    implementation : str
        One of ``module.implementations()``.
    """

    module: Any
    implementation: str


def kernel_names() -> tuple[str, ...]:
    """Name every kernel that `load_kernels` takes here: "auto", what this CPU can run, and "reference"."""
    compiled = _compiled()
    return ("auto", *(compiled.native.implementations() if compiled else ()), "reference")


@lru_cache(maxsize=16)
def load_kernels(name: str = "auto") -> Kernels:
    """Find a kernel by name.

    Parameters
    ----------
    name : str
        "auto" is the compiled kernels' own choice (which the environment may direct, see ``streamjoin_ds._kernels``;
        any other name given here wins over it), or the twin where they are not built.

    Raises
    ------
    KernelError
        A name that this CPU or this installation does not have.
    """
    compiled = _compiled()
    if name == "auto":
        name = str(compiled.default_implementation()) if compiled else "reference"
    if name == "reference":
        return Kernels(reference, name)
    if compiled is not None and name in compiled.native.implementations():
        return Kernels(compiled.native, name)
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
