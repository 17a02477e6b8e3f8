"""Types of the compiled kernels: `streamjoin_ds.engine.kernels.contract` has every name of `native`."""

from streamjoin_ds.engine.kernels.contract import NativeModule

__all__ = ["default_implementation", "native"]

native: NativeModule

def default_implementation() -> str: ...
