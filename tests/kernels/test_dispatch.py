"""Which kernel runs: it is chosen once, by the CPU or by STREAMJOIN_DS_KERNEL, and uses only what it may."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys

import pytest

from streamjoin_ds._kernels import native
from streamjoin_ds.errors import KernelError

ASK = """
from streamjoin_ds.engine.kernels.loading import load_kernels
k = load_kernels()
print(k.implementation, k.module.Scan.__module__, *k.module.implementations())
"""
OBJDUMP = shutil.which("objdump")


def ask(kernel: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "STREAMJOIN_DS_KERNEL"}
    if kernel is not None:
        environment["STREAMJOIN_DS_KERNEL"] = kernel
    command = [sys.executable, "-c", ASK]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_the_widest_is_the_default():
    names = native.implementations()
    assert names[0] == "scalar"
    assert list(names) == [name for name in ("scalar", "avx2", "avx512") if name in names]
    assert ask(None).stdout.split() == [names[-1], "streamjoin_ds._kernels.native", *names]


@pytest.mark.parametrize("name", native.implementations())
def test_the_environment_can_ask_for_each(name):
    assert ask(name).stdout.split()[:2] == [name, "streamjoin_ds._kernels.native"]


def test_the_environment_can_ask_for_the_twin():
    assert ask("reference").stdout.split() == ["reference", "streamjoin_ds.engine.kernels.twins.scan", "reference"]


def test_the_environment_can_leave_the_choice():
    assert ask("auto").stdout.split()[0] == native.implementations()[-1]


def test_the_environment_cannot_ask_for_what_is_not_there():
    answer = ask("neon9")
    assert answer.returncode != 0
    assert "KernelError: KERNEL" in answer.stderr
    assert "scalar" in answer.stderr
    assert "neon9" not in answer.stderr


def test_the_argument_wins_over_the_environment():
    scan = native.Scan([], [], [], [], "scalar", left_count=1, right_count=1)
    assert scan.implementation == "scalar"
    with pytest.raises(KernelError):
        native.set_default_implementation("reference")


def test_features_explain_the_implementations():
    features = native.cpu_features()
    assert ("avx2" in native.implementations()) == bool(features.get("avx2"))
    wide = all(features.get(name) for name in ("avx512f", "avx512vl", "avx512bw", "avx512dq"))
    assert ("avx512" in native.implementations()) == wide


@pytest.mark.skipif(OBJDUMP is None or platform.machine() != "x86_64", reason="needs objdump and x86-64")
def test_wide_registers_only_in_their_own_functions():
    """A single AVX-512 instruction outside of the functions for it would end the process on an older CPU."""
    listing = subprocess.run(
        [OBJDUMP, "-d", "--no-show-raw-insn", native.__file__], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    widest: dict[str, str] = {}
    name = ""
    for line in listing.splitlines():
        if header := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            name = header[1]
            widest[name] = ""
        elif "%zmm" in line or re.search(r"%k[0-7]\b", line):
            widest[name] = "avx512"
        elif "%ymm" in line or re.search(r"\t\s*v[a-z0-9]+ ", line):
            widest[name] = max(widest[name], "avx2")
    functions = {re.sub(r"\..*", "", name): name for name in widest if name.startswith("sj_")}
    if "sj_grid_fill_avx512" not in functions:
        pytest.skip("the extension is stripped")
    for name, used in widest.items():
        plain = re.sub(r"\..*", "", name)
        allowed = {"avx512": ("", "avx2", "avx512"), "avx2": ("", "avx2")}.get(plain.rsplit("_", 1)[-1], ("",))
        assert used in allowed, f"{name} uses {used}"
    # Prefix and suffix find the functions: some compilers put the loop into the function that calls it.
    for operation in ("sj_scan_", "sj_grid_"):
        for suffix, registers in (("_scalar", ""), ("_avx2", "avx2"), ("_avx512", "avx512")):
            names = [name for name in functions if name.startswith(operation) and name.endswith(suffix)]
            assert max(widest[functions[name]] for name in names) == registers
