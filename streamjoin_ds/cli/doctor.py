"""``streamjoin doctor``: what this machine has and lacks, one line each: a value, a state, and a hint."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from streamjoin_ds.cli.main import DISTRIBUTION, error_text
from streamjoin_ds.errors import StreamJoinError, hinted
from streamjoin_ds.version import version

if TYPE_CHECKING:
    import pandas

    from streamjoin_ds.engine.kernels.contract import KernelModule

__all__ = ["Check", "command", "in_range", "machine_checks", "python_facts", "spark_checks"]


_PACKAGES = ("numpy", "pandas", "pyarrow", "pyspark", "delta-spark", "deltalake")
_SHARED_MEMORY = Path("/dev/shm")
_SMALL_SHARED_MEMORY_BYTES = 64 * 2**20  # free bytes below which the doctor warns: 64 MiB


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report.

    Attributes
    ----------
    name, value : str
        What was checked, and what was found.
    state : "ok", "warning" or "missing"
        "missing": a join cannot run without what was checked.
    hint : str
        What to type, or why it matters; empty if the state is "ok".
    """

    name: str
    value: str
    state: Literal["ok", "warning", "missing"] = "ok"
    hint: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the check as a dict, for JSON."""
        return asdict(self)


def machine_checks() -> Iterator[Check]:
    """Give the checks that need no Spark, one by one."""
    yield Check("streamjoin-ds", f"{version()} ({_build()})")
    yield _python()
    yield _bytecode()
    yield from _kernels()
    yield _cores()
    yield Check("pinning", _pinning())
    yield _java()
    ranges = _required_ranges()
    for package in _PACKAGES:
        yield _package(package, ranges)
    yield _jar_cache()
    yield _class_archive(make=False)
    yield _shared_memory()


def spark_checks(session_factory: Callable[[], Any]) -> Iterator[Check]:
    """Give the checks that need Spark: a Python worker compared with the driver, a Delta round trip, the class archive.

    Parameters
    ----------
    session_factory : callable
        Returns the SparkSession to check with.
    """
    try:
        spark = session_factory()
    except StreamJoinError as error:
        yield Check("Spark session", error.message, "missing", error.hint)
        return
    yield Check("Spark session", f"{spark.version}, {spark.sparkContext.master}")
    try:
        row = spark.range(1).mapInPandas(_worker_facts, "facts string").first()
        facts = json.loads(row["facts"])
        yield from _compare(python_facts(), facts)
        yield Check("worker's pinning", facts["pinning"])
    except Exception as error:
        yield Check("Python worker", error_text(error)[0], "missing", "the session's log has the worker's error.")
    folder = Path(tempfile.mkdtemp(prefix="streamjoin-doctor-"))
    try:
        spark.range(3).write.format("delta").save(str(folder / "table"))
        row_count = spark.read.format("delta").load(str(folder / "table")).count()
        state: Literal["ok", "missing"] = "ok" if row_count == 3 else "missing"
        yield Check("Delta round trip", f"{row_count} of 3 rows", state)
    except Exception as error:
        yield Check("Delta round trip", error_text(error)[0], "missing", "pip install 'delta-spark==4.4.0'")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    yield _class_archive(make=True)


def python_facts() -> dict[str, str]:
    """Return the facts that must be the same in the driver and in every worker."""
    facts = {"python": platform.python_version(), "executable": sys.executable}
    facts["streamjoin-ds"] = version()
    try:
        facts["kernels"] = _load_kernels().default_implementation()
    except ImportError as error:
        facts["kernels"] = f"not importable: {error}"
    return facts


def in_range(found: str, specification: str) -> bool:
    """Whether a release is in a range like ``>=2.2,<3``; True also if the release or the range is not understood.

    A pre-release, a post-release and a local build of 2.3 count as 2.3.
    """
    try:
        return Version(Version(found).base_version) in SpecifierSet(specification)
    except (InvalidVersion, InvalidSpecifier):
        return True


def _worker_facts(frames: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
    """Give a Python worker's facts; Spark calls this in the same way as a join's cells: pandas over Arrow."""
    import pandas

    for frame in frames:
        if len(frame):
            yield pandas.DataFrame({"facts": [json.dumps({**python_facts(), "pinning": _pinning()})]})


def _load_kernels() -> KernelModule:
    """Return the kernels that run here where none is named; an ImportError where none was built."""
    importlib.import_module("streamjoin_ds._kernels")
    from streamjoin_ds.engine.kernels.loading import load_kernels

    return load_kernels().module


def _compare(driver: dict[str, str], worker: dict[str, str]) -> Iterator[Check]:
    for name, here in driver.items():
        there = worker.get(name)
        if there == here and not there.startswith("not importable"):
            yield Check(f"worker's {name}", there)
        else:
            hint = "install the same streamjoin-ds for the workers' Python, and set spark.pyspark.python to it."
            yield Check(f"worker's {name}", f"{there} (driver: {here})", "missing", hint)


def _build() -> str:
    """Return how this package was installed: the wheel's tag, and "editable" if the source tree is used in place."""
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "not installed, only on the path"
    tags = re.findall(r"^Tag: (\S+)", distribution.read_text("WHEEL") or "", re.MULTILINE)
    editable = '"editable": true' in (distribution.read_text("direct_url.json") or "")
    return " ".join([tags[0] if tags else "unknown build", *(["editable"] if editable else [])])


def _python() -> Check:
    found = platform.python_version()
    value = f"{found} {platform.machine()} ({sys.executable})"
    # Some distributions call their build "3.11.2+", which `packaging` does not take for a version.
    release = ".".join(map(str, sys.version_info[:3]))
    try:
        wanted = importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"] or ""
    except importlib.metadata.PackageNotFoundError:
        wanted = ""
    if in_range(release, wanted):
        return Check("python", value)
    return Check("python", value, "missing", f"use a Python {wanted}")


def _bytecode() -> Check:
    """Say whether Python keeps what it compiled of this module; it did on import, if it may."""
    if os.path.exists(importlib.util.cache_from_source(__file__)):
        return Check("bytecode", "kept")
    hint = f"python -m compileall -q {Path(__file__).parents[1]}   (PYTHONDONTWRITEBYTECODE or a read-only folder)"
    return Check("bytecode", "not kept: each process compiles the package anew, for seconds", "warning", hint)


def _kernels() -> Iterator[Check]:
    try:
        kernels = _load_kernels()
    except ImportError as error:
        yield Check("kernels", f"not importable: {error}", "missing", "make setup (or: pip install -e .)")
        return
    features = [name for name, present in kernels.cpu_features().items() if present]
    yield Check("CPU features", " ".join(features) or "none that a kernel uses")
    yield Check("kernels", f"{kernels.default_implementation()} chosen of {', '.join(kernels.implementations())}")


def _cores() -> Check:
    from streamjoin_ds.engine.core_lease import usable_core_count
    from streamjoin_ds.machine import memory_limit_bytes

    value = f"{usable_core_count()} usable of {os.cpu_count()}, {memory_limit_bytes() / 2**30:.1f} GiB memory"
    return Check("cores", value)


def _pinning() -> str:
    """Return what is done here with the kernel threads of a cell that has several: how they are pinned, or why not."""
    from streamjoin_ds.engine.core_lease import control_group_cores, cores_to_lease, free_cores

    cores = cores_to_lease()
    if cores:
        return f"{len(cores)} cores to lease for kernel threads, {len(free_cores())} of them free"
    allowed = control_group_cores()
    why = (
        "this system cannot pin threads"
        if allowed is None
        else f"the control group allows {allowed:g} cores' worth of time"
    )
    return f"kernel threads run unpinned: {why}"


def _java() -> Check:
    from streamjoin_ds.spark.java import TESTED_JAVA, find_java

    try:
        java = find_java()
    except StreamJoinError as error:
        return Check("Java", error.message, "missing", error.hint)
    value = f"{java.major} by {java.origin} ({java.home})"
    if TESTED_JAVA[0] <= java.major <= TESTED_JAVA[-1]:
        return Check("Java", value)
    return Check("Java", value, "warning", f"tested with Java {' and '.join(map(str, TESTED_JAVA))}; use one of them.")


def _required_ranges() -> dict[str, str]:
    """Return the version range of each package that this distribution requires, those for Spark included."""
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    each = map(Requirement, requirements)
    plain = (one for one in each if one.marker is None or one.marker.evaluate({"extra": "spark"}))
    return {canonicalize_name(one.name): str(one.specifier) for one in plain}


def _package(package: str, ranges: dict[str, str]) -> Check:
    wanted = ranges.get(package, "")
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return Check(package, "not installed", "missing", f"pip install '{package}{wanted}'")
    value = f"{found} (supported: {wanted})" if wanted else found
    if in_range(found, wanted):
        return Check(package, value)
    return Check(package, value, "missing", f"pip install '{package}{wanted}'")


def _jar_cache() -> Check:
    from streamjoin_ds.spark.jars import default_cache_path, delta_jars_in

    try:
        path = default_cache_path()
        jars = delta_jars_in(path)
    except StreamJoinError as error:
        return Check("Delta jars", error.message, "missing", error.hint)
    if jars is not None:
        return Check("Delta jars", f"{len(jars)} in {path}")
    what = "damaged" if path.exists() else "not there yet"
    return Check("Delta jars", f"{what}: {path}", "warning", "the first Spark session fetches them (13 MB).")


def _class_archive(*, make: bool) -> Check:
    """Check the archive of Java's classes: there, made now, or why it is not; always "ok", as a join needs none."""
    from streamjoin_ds.spark.class_archive import ClassArchive
    from streamjoin_ds.spark.java import find_java, spark_home

    name = "class archive"
    try:
        archive = ClassArchive.of(find_java().home, spark_home())
    except (StreamJoinError, ImportError):
        return Check(name, "none: Java or PySpark is missing")
    if archive is None:
        return Check(name, "none: the user's cache folder cannot be made, or anybody may write to it")
    path = archive.make(wait=True) if make else archive.path()
    if path is not None:
        return Check(name, f"{path.stat().st_size / 2**20:.0f} MiB, Spark starts with it: {path}")
    if archive.refusal is not None:
        return Check(name, f"none: {archive.refusal}")
    return Check(name, "not there yet: the first join makes it, or `streamjoin doctor --spark`")


def _shared_memory() -> Check:
    try:
        usage = shutil.disk_usage(_SHARED_MEMORY)
    except OSError:
        return Check("shared memory", f"no {_SHARED_MEMORY}", "warning", "without it blocks lie on disk only.")
    value = f"{usage.free / 2**20:.0f} of {usage.total / 2**20:.0f} MiB free in {_SHARED_MEMORY}"
    if usage.free < _SMALL_SHARED_MEMORY_BYTES:
        return Check("shared memory", value, "warning", "in a container, start it with --shm-size=1g.")
    return Check("shared memory", value)


@click.command("doctor", short_help="Check that this machine has what a join needs, and say what to do.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--spark", "with_spark", is_flag=True, help="Also check a Spark worker, and write a Delta table.")
def command(as_json: bool, with_spark: bool) -> None:
    """Check that this machine has what a join needs.

    Each problem comes with a hint that says what to do. The exit status is 1 if something that a join needs is missing.
    """
    found = chain(machine_checks(), _inside_spark() if with_spark else ())
    if as_json:
        checks = list(found)
        report = {"ok": not _any_missing(checks), "checks": [check.as_dict() for check in checks]}
        click.echo(json.dumps(report, indent=1))
    else:
        checks = list(_printed_table(found) if sys.stdout.isatty() else _printed_lines(found))
        click.echo(_summary(checks))
    if _any_missing(checks):
        raise click.exceptions.Exit(1)


def _inside_spark() -> Iterator[Check]:
    from streamjoin_ds.spark.session import spark_session

    return spark_checks(lambda: spark_session("streamjoin doctor", quick_compiler=True))


def _any_missing(checks: Iterable[Check]) -> bool:
    return any(check.state == "missing" for check in checks)


def _summary(checks: list[Check]) -> str:
    counts = {state: sum(check.state == state for check in checks) for state in ("missing", "warning")}
    if not any(counts.values()):
        return "Everything that a join needs is there."
    return f"{counts['missing']} missing, {counts['warning']} with a warning."


def _printed_lines(checks: Iterable[Check]) -> Iterator[Check]:
    """Print each check as it is made, for a pipe or a log."""
    for check in checks:
        click.echo(f"{check.state:<8}{check.name}: {hinted(check.value.rstrip('.'), check.hint)}")
        yield check


def _printed_table(checks: Iterable[Check]) -> Iterator[Check]:
    """Print one table on a terminal, growing as the checks are made."""
    from rich import box
    from rich.live import Live
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("what to do", overflow="fold")
    colours = {"ok": "green", "warning": "yellow", "missing": "bold red"}
    with Live(table, vertical_overflow="visible"):
        for check in checks:
            colour = colours[check.state]
            table.add_row(f"[{colour}]{check.name}[/]", _escaped(check.value), _escaped(check.hint))
            yield check


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
