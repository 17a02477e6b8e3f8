"""What packages the project says the same as pyproject.toml: the changelog, the pins, the recipe, the images."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from streamjoin_ds import StreamJoin
from streamjoin_ds.spark.jars import jar_checksums

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "examples" / "deploy"


@pytest.fixture(scope="module")
def listed() -> ModuleType:
    """Return the script that says what is installed."""
    spec = importlib.util.spec_from_file_location("requirements", ROOT / ".ci" / "requirements.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def project(listed: ModuleType) -> dict[str, Any]:
    """Return what pyproject.toml says of the project."""
    found: dict[str, Any] = listed.PROJECT
    return found


def test_the_newest_release_of_the_changelog_is_the_version(project: dict[str, Any]) -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    released = [heading.split(" - ") for heading in headings if heading != "Unreleased"]
    assert released[0][0] == project["version"]
    assert headings.index(" - ".join(released[0])) <= 1
    assert [Version(version) for version, _ in released] == sorted((Version(one) for one, _ in released), reverse=True)
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", day) for _, day in released)


def every_requirement(listed: ModuleType) -> Iterator[Requirement]:
    yield from map(Requirement, listed.with_extras(listed.PROJECT["optional-dependencies"]))
    yield from map(Requirement, listed.FACTS["build-system"]["requires"])
    for group in listed.FACTS["dependency-groups"].values():
        yield from map(Requirement, group)


def test_each_requirement_has_a_pin_that_it_allows(listed: ModuleType) -> None:
    """In every Python: where there are several pins, their markers choose one."""
    known = listed.pins((ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8"))
    for requirement in every_requirement(listed):
        lines, _ = known[canonicalize_name(requirement.name)]
        for line in lines:
            version = Version(re.match(r"\S+?==([^ ;]+)", line)[1])  # type: ignore[index]
            assert version in requirement.specifier, f"make constraints: {requirement} and {line.split(' --')[0]}"


def test_each_pin_has_hashes(listed: ModuleType) -> None:
    known = listed.pins((ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8"))
    assert len(known) > 50
    for lines, _ in known.values():
        assert all(re.search(r"==\S+.* --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_what_is_installed_needs_nothing_more(listed: ModuleType) -> None:
    """The pins of an extra are whole: pip installs them without looking for what they bring."""
    lines = [Requirement(line.split(" --hash")[0]) for line in listed.pinned(listed.with_extras(["test"]))]
    here = {canonicalize_name(one.name) for one in lines if one.marker is None or one.marker.evaluate()}
    for name in sorted(here):
        try:
            asked = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # an older environment
        for requirement in map(Requirement, asked):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in here, f"{name} needs {requirement}"


def test_a_requirement_without_a_pin_is_named(listed: ModuleType) -> None:
    with pytest.raises(SystemExit, match="does not have numpyro: make constraints"):
        listed.pinned(["numpy", "numpyro>=1"])


def test_pins_are_read_with_what_asks_for_them(listed: ModuleType) -> None:
    text = (
        "# made by a command\na==1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n    # via\n"
        "    #   -r ranges.txt\n    #   b-c\n"
        "b-c==2 ; python_full_version < '3.11' \\\n    --hash=sha256:02\n    # via -r ranges.txt\n"
        "b-c==3 ; python_full_version >= '3.11' \\\n    --hash=sha256:03\n    # via d\n"
    )
    assert listed.pins(text) == {
        "a": (["a==1 --hash=sha256:00 --hash=sha256:01"], {"b-c"}),
        "b-c": (
            [
                "b-c==2 ; python_full_version < '3.11' --hash=sha256:02",
                "b-c==3 ; python_full_version >= '3.11' --hash=sha256:03",
            ],
            {"d"},
        ),
    }


def test_the_jars_of_each_spark_that_may_be_installed_have_hashes(project: dict[str, Any]) -> None:
    asked = {one.name: one.specifier for one in map(Requirement, project["optional-dependencies"]["spark"])}
    (delta,) = (one.version for one in asked["delta-spark"])
    newest = max(Version(one.version) for one in asked["pyspark"])
    oldest = min(Version(one.version) for one in asked["pyspark"])
    assert newest.major == oldest.major
    for minor in range(oldest.minor, newest.minor + 1):
        checksums = jar_checksums(f"io.delta:delta-spark_{newest.major}.{minor}_2.13:{delta}")
        assert any(f"delta-spark_{newest.major}.{minor}_" in name for name in checksums)
        assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in checksums.values())


CONDA_NAMES = {"python-tzdata": "tzdata", "python-xxhash": "xxhash"}
"""Names of conda-forge that are others on PyPI; without the first one it is the database without Python's package."""


def test_the_recipe_of_conda(project: dict[str, Any], listed: ModuleType) -> None:
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / ".ci" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == project["version"]
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
    assert recipe["build"]["python"]["entry_points"] == [f"{a} = {b}" for a, b in project["scripts"].items()]

    def named(lines: list[str]) -> dict[str, SpecifierSet]:
        parts = (line.partition(" ") for line in lines if not line.startswith("${{"))
        return {CONDA_NAMES.get(name, name): SpecifierSet(allowed) for name, _, allowed in parts}

    def wanted(lines: list[str]) -> dict[str, SpecifierSet]:
        newest = {"python_version": "3.14", "python_full_version": "3.14.0"}
        found = [one for one in map(Requirement, lines) if one.marker is None or one.marker.evaluate(newest)]
        return {canonicalize_name(one.name): one.specifier for one in found}

    python = {"python": SpecifierSet(project["requires-python"])}
    assert named(recipe["requirements"]["run"]) == {**wanted(project["dependencies"]), **python}
    assert named(recipe["requirements"]["run_constraints"]) == wanted(project["optional-dependencies"]["spark"])
    host = wanted(listed.FACTS["build-system"]["requires"])
    assert named(recipe["requirements"]["host"]) == {**host, **dict.fromkeys(("python", "pip"), SpecifierSet())}


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.spark"])
def test_an_image_is_made_of_what_there_is(name: str, project: dict[str, Any], listed: ModuleType) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources)
    extras = re.findall(r"requirements\.py (?!--)([a-z0-9 -]+?) *(?:>|\|)", text)
    assert extras
    assert set(" ".join(extras).split()) <= set(project["optional-dependencies"])
    (spark,) = (one for one in map(Requirement, project["optional-dependencies"]["spark"]) if one.name == "pyspark")
    for tag in re.findall(r"^FROM spark:([0-9.]+)-", text, re.MULTILINE):
        assert tag in spark.specifier
        assert {line.partition(" ")[0] for line in listed.pinned(["pyspark"])} >= {f"pyspark=={tag}"}
    for python in re.findall(r"3\.\d+(?=, for which)", text):
        assert python in SpecifierSet(project["requires-python"])


def test_the_manifest_of_the_spark_operator(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    config, application = yaml.safe_load_all((DEPLOY / "spark-operator.yaml").read_text(encoding="utf-8"))
    spec = application["spec"]
    (mount,) = spec["driver"]["configMaps"]
    assert mount["name"] == config["metadata"]["name"]
    (name,) = config["data"]
    assert spec["mainApplicationFile"] == f"local://{mount['path']}/{name}"
    (tmp_path / name).write_text(config["data"][name], encoding="utf-8")
    assert isinstance(runpy.run_path(str(tmp_path / name))["JOIN"], StreamJoin)
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert spec["driver"]["volumeMounts"] == spec["executor"]["volumeMounts"]
    assert {one["name"] for one in spec["driver"]["volumeMounts"]} == volumes
    assert (DEPLOY / "Dockerfile.spark").read_text(encoding="utf-8").count(f"FROM spark:{spec['sparkVersion']}-") == 2
    values = yaml.safe_load((DEPLOY / "spark-operator-values.yaml").read_text(encoding="utf-8"))
    assert application["metadata"]["namespace"] in values["spark"]["jobNamespaces"]
    assert spec["driver"]["serviceAccount"] == values["spark"]["serviceAccount"]["name"]


def test_the_oldest_python_is_said_once(project: dict[str, Any]) -> None:
    (oldest,) = (one.version for one in SpecifierSet(project["requires-python"]))
    assert f"Python {oldest} to " in (ROOT / "README.md").read_text(encoding="utf-8")
