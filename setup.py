"""Builds the compiled kernels; everything else is in pyproject.toml.

There is one portable wheel. Its baseline is the compiler's default for the platform (x86-64). Each wider instruction
set has its own C file with target pragmas, and the kernels ask the CPU at import. `-fno-tree-vectorize` keeps the
scalar path scalar, so that it can be compared with SIMD; `-ffp-contract=off` keeps `left - right` one IEEE subtraction
everywhere.

``STREAMJOIN_DS_BOUNDS_CHECK=1`` in the environment builds kernels that check every index of a memoryview, list and
tuple. They are for tests (`.ci/sanitize`), not for measuring.
"""

import os
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

KERNELS = "cython_kernels"
BOUNDS_CHECK = os.environ.get("STREAMJOIN_DS_BOUNDS_CHECK", "") not in ("", "0")
# Cython writes the macros of an extension into the first lines of the generated C: this one tells how it was built.
BOUNDS_CHECK_MACRO = "SJ_BOUNDS_CHECK"


# Families that are an extension of their own: a process that reads no topic does not load ``kafka``, and ``pages`` are
# the sink's, which knows nothing of the engine.
OWN_EXTENSIONS = ("kafka", "pages")


def files_of_families(*suffixes, own=""):
    """Return the files with these suffixes in the kernels' folders, sorted; each family of kernels has a folder.

    Without a name they are those of all families that share an extension.
    """
    found = (path for path in Path(KERNELS).glob("*/*") if path.suffix in suffixes)
    names = {path: path.parent.name if path.parent.name in OWN_EXTENSIONS else "" for path in found}
    return sorted(path.as_posix() for path, name in names.items() if name == own)


def generated_with_checks():
    """Whether the last build left kernels that check bounds: Cython compares only times of files, not its options."""
    generated = Path(KERNELS, "kernels.c")
    return generated.exists() and BOUNDS_CHECK_MACRO in generated.read_text(encoding="utf-8")[:4000]


class BuildKernels(build_ext):
    """Compiles the files of the kernels side by side; setuptools does so only for several extensions.

    What Cython wrote is calls and checks around the kernels: with -O1 it compiles in half the time.
    """

    def build_extensions(self):
        """See `build_ext`."""
        one_by_one = self.compiler.compile

        def compile_file(source, extra_postargs, **options):
            is_generated = Path(source).with_suffix(".pyx").exists()
            return one_by_one([source], extra_postargs=[*extra_postargs, *(["-O1"] if is_generated else [])], **options)

        def side_by_side(sources, **options):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                compiled = pool.map(partial(compile_file, **options), sources)
                return [file for files in compiled for file in files]

        self.compiler.compile = side_by_side
        super().build_extensions()


# Typed memoryviews are in the limited API from Python 3.11 on; free-threaded builds have no limited API.
limited_api = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
# No names for a debugger, unless CFLAGS asks for them: a fifth less time to compile, and a smaller wheel.
plain = [] if any(flag.startswith("-g") for flag in os.environ.get("CFLAGS", "").split()) else ["-g0"]
x86 = sysconfig.get_platform().endswith(("x86_64", "amd64"))  # of the target: the wheel may be for another processor

common = {
    "include_dirs": [KERNELS],
    "define_macros": [
        *([("Py_LIMITED_API", "0x030B0000")] if limited_api else []),
        *([(BOUNDS_CHECK_MACRO, "1")] if BOUNDS_CHECK else []),
    ],
    "py_limited_api": limited_api,
}
extensions = [
    Extension(
        "streamjoin_ds._kernels.native",
        sources=[f"{KERNELS}/kernels.pyx", *files_of_families(".c")],
        depends=[f"{KERNELS}/joins.pxi", *files_of_families(".h", ".pxi")],
        extra_compile_args=["-O3", *plain, "-ffp-contract=off", *(["-fno-tree-vectorize"] if x86 else [])],
        libraries=["m", "pthread"],
        **common,
    ),
    # librdkafka is not linked: its functions are found when a topic is read, in confluent-kafka's own library.
    Extension(
        "streamjoin_ds._kernels.messages",
        sources=[f"{KERNELS}/messages.pyx", *files_of_families(".c", own="kafka")],
        depends=files_of_families(".h", own="kafka"),
        extra_compile_args=["-O3", *plain],
        libraries=["dl"],
        **common,
    ),
    Extension(
        "streamjoin_ds._kernels.pages",
        sources=[f"{KERNELS}/pages.pyx", *files_of_families(".c", own="pages")],
        depends=files_of_families(".h", own="pages"),
        extra_compile_args=["-O3", *plain],
        **common,
    ),
]

setup(
    packages=[
        *find_packages(include=["streamjoin_ds", "streamjoin_ds.*"]),
        "streamjoin_ds._kernels",
        "streamjoin_ds._sql",
    ],
    package_dir={"streamjoin_ds._kernels": KERNELS, "streamjoin_ds._sql": "sql"},
    ext_modules=cythonize(
        extensions,
        force=generated_with_checks() != BOUNDS_CHECK,
        compiler_directives={
            "boundscheck": BOUNDS_CHECK,
            # Off in both builds: an index below zero is a fault, and the check would not find it if it wrapped around.
            "wraparound": False,
            "initializedcheck": BOUNDS_CHECK,
        },
    ),
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if limited_api else {},
)
