"""Which kernels run: the compiled ones, or their NumPy twins."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.errors import KernelError

__all__ = ["Kernels", "kernel_names", "load_kernels"]

_COMPILED = "streamjoin_ds._kernels"


class Kernels(Struct, frozen=True):
    """A kernel module and the implementation of it that is to run.

    Attributes
    ----------
    module : KernelModule
        ``streamjoin_ds._kernels.native`` or `streamjoin_ds.engine.kernels.twins`; both have the same names.
    implementation : str
        One of ``module.implementations()``.
    """

    module: KernelModule
    implementation: str


def kernel_names() -> tuple[str, ...]:
    """Name every kernel that `load_kernels` takes here: "auto", what this CPU can run, and "reference"."""
    compiled = _compiled()
    return ("auto", *(compiled.implementations() if compiled is not None else ()), "reference")


@lru_cache(maxsize=16)
def load_kernels(name: str = "auto") -> Kernels:
    """Find a kernel by name.

    Parameters
    ----------
    name : str
        "auto" is the compiled kernels' own choice, or the twin where they are not built. The environment may direct
        that choice (see ``streamjoin_ds._kernels``); any other name given here wins over it.

    Raises
    ------
    KernelError
        This CPU or this installation has no kernel of that name.
    """
    compiled = _compiled()
    if name == "auto":
        name = _own_choice() if compiled is not None else "reference"
    if name == "reference":
        return Kernels(twins, name)
    if compiled is not None and name in compiled.implementations():
        return Kernels(compiled, name)
    msg = "this kernel cannot run on this machine or with this installation"
    raise KernelError(msg, name="kernel", hint=f"one of {', '.join(kernel_names())}")


def _own_choice() -> str:
    """Name the kernel that the compiled kernels choose themselves; the environment may make that "reference"."""
    from streamjoin_ds._kernels import default_implementation

    return default_implementation()


@lru_cache(maxsize=1)
def _compiled() -> KernelModule | None:
    """Return the compiled kernels; None where they were not built."""
    try:
        from streamjoin_ds._kernels import native
    except ModuleNotFoundError as error:
        if error.name != _COMPILED:
            raise
        return None
    return native
