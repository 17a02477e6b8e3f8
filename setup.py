"""Builds the compiled kernels; everything else is in pyproject.toml.

One portable wheel: the baseline is the compiler's default for the platform (x86-64), each wider instruction set has its
own C file with target pragmas, and the CPU is asked at import. `-fno-tree-vectorize` keeps the scalar path scalar, so
that comparing with it means something; `-ffp-contract=off` keeps `left - right` one IEEE subtraction everywhere.
"""

import platform
import sys
import sysconfig

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

KERNELS = "cython_kernels"
SOURCES = [
    "kernels.pyx",
    "arrow_rows.c",
    "crew.c",
    "dispatch.c",
    "gather.c",
    "gather_bytes.c",
    "grid_buckets.c",
    "grid_order.c",
    "grid_probe_avx2.c",
    "grid_probe_avx512.c",
    "grid_probe_scalar.c",
    "hash_bytes.c",
    "bucket_grid.c",
    "bucket_probe_avx2.c",
    "bucket_probe_avx512.c",
    "bucket_probe_scalar.c",
    "merge_order.c",
    "run_steps.c",
    "runs_probe.c",
    "scan_avx2.c",
    "scan_avx512.c",
    "scan_scalar.c",
]
HEADERS = [
    "bucket_grid.pxi",
    "bucket_index.pxi",
    "arrow_rows.pxi",
    "bytes.pxi",
    "crew.pxi",
    "gate.pxi",
    "joins.pxi",
    "layout.pxi",
    "run_columns.pxi",
    "result_rows.pxi",
    "sealing.pxi",
    "runs_probe.pxi",
    "arrow_rows.h",
    "band.h",
    "crew.h",
    "dispatch.h",
    "grid.h",
    "grid_probe_template.h",
    "bucket_grid.h",
    "bytes.h",
    "bucket_probe_template.h",
    "lanes_avx2.h",
    "lanes_avx512.h",
    "lanes_scalar.h",
    "order_keys.h",
    "rows.h",
    "runs_probe.h",
    "scan_template.h",
    "sorted_rows.h",
]

# Typed memoryviews are in the limited API from 3.11 on; free-threaded builds have none.
limited_api = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
x86 = platform.machine().lower() in {"x86_64", "amd64"}

extension = Extension(
    "streamjoin_ds._kernels.native",
    sources=[f"{KERNELS}/{name}" for name in SOURCES],
    depends=[f"{KERNELS}/{name}" for name in HEADERS],
    include_dirs=[KERNELS],
    define_macros=[("Py_LIMITED_API", "0x030B0000")] if limited_api else [],
    py_limited_api=limited_api,
    extra_compile_args=["-O3", "-ffp-contract=off", *(["-fno-tree-vectorize"] if x86 else [])],
    libraries=["m", "pthread"],
)

setup(
    packages=[
        *find_packages(include=["streamjoin_ds", "streamjoin_ds.*"]),
        "streamjoin_ds._kernels",
        "streamjoin_ds._sql",
    ],
    package_dir={"streamjoin_ds._kernels": KERNELS, "streamjoin_ds._sql": "sql"},
    ext_modules=cythonize([extension], language_level=3),
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if limited_api else {},
)
