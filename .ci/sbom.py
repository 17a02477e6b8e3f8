"""Write the bill of materials of an installation: ``sbom.py FOUND.json TARGET.json``. Used by release.

Of what cyclonedx-py found in an environment it keeps what the extra `spark` brings, and adds what is not Python's:
Delta's jars, which Spark is given, and what the page and its map are made of. Hashes are those that are compared when
the package is set up: of `constraints.txt`, and of `streamjoin_ds.spark.jars`.
"""

import json
import re
import sys
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from requirements import PROJECT, canonical, pinned, with_extras

from streamjoin_ds.spark.jars import jar_checksums

PAGE = Path(__file__).parents[1] / "streamjoin_ds" / "watch" / "page"


def jar(name: str, checksum: str) -> Component:
    """Return a jar as Ivy names it: ``io.delta_delta-storage-4.4.0.jar``."""
    group, _, rest = name.removesuffix(".jar").partition("_")
    artifact, _, version = rest.rpartition("-")
    return Component(
        name=artifact,
        group=group,
        version=version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("maven", group, artifact, version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)],
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
    )


def shipped(name: str, licence: str, file: str, pattern: str) -> Component:
    """Return what the package ships of an npm package; a file of it says the version."""
    found = re.search(pattern, (PAGE / file).read_text(encoding="utf-8"))
    if found is None:
        sys.exit(f"{file} does not say its version")
    return Component(
        name=name,
        version=found[1],
        type=ComponentType.LIBRARY,
        purl=PackageURL("npm", None, name, found[1]),
        licenses=[DisjunctiveLicense(id=licence)],
    )


def hashes_of_pins() -> dict[tuple[str, str], list[HashType]]:
    """Return the hashes of the files of each package that the extra brings, by its name and version."""
    found = {}
    for line in pinned(with_extras(["spark"])):
        marker = Requirement(line.split(" --hash")[0]).marker
        if marker is not None and not marker.evaluate():
            continue
        version = re.search(r"==([^ ;]+)", line)
        checksums = re.findall(r"--hash=sha256:([0-9a-f]+)", line)
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=checksum) for checksum in checksums]
        found[canonical(line), version[1] if version else ""] = hashes
    return found


def main(found: Path, target: Path) -> None:
    """Keep, add, and write what the schema of CycloneDX 1.6 allows."""
    bom = Bom.from_json(json.loads(found.read_text(encoding="utf-8")))  # type: ignore[attr-defined]
    root, wanted = bom.metadata.component, hashes_of_pins()
    if root is None or root.version != PROJECT["version"]:
        sys.exit(f"the component is not version {PROJECT['version']} of the package")
    for component in list(bom.components):
        key = canonical(component.name), component.version or ""
        if key in wanted:
            component.hashes.update(wanted.pop(key))
        else:
            bom.components.remove(component)
    if lacking := [" ".join(key) for key in wanted]:
        sys.exit(f"not in the environment: {', '.join(lacking)}: make setup")
    versions = {canonical(component.name): component.version or "" for component in bom.components}
    spark = ".".join(versions["pyspark"].split(".")[:2])
    checksums = jar_checksums(f"io.delta:delta-spark_{spark}_2.13:{versions['delta-spark']}")
    more = [jar(*one) for one in checksums.items()]
    more.append(shipped("uplot", "MIT", "uplot.js", r"uPlot \(v([\d.]+)\)"))
    more.append(shipped("world-atlas", "ISC", "land.LICENSE", r"world-atlas ([\d.]+)"))
    direct = {canonical(line) for line in with_extras(["spark"])}
    direct_components = [component for component in bom.components if canonical(component.name) in direct]
    kept = {component.bom_ref for component in bom.components}
    for dependency in list(bom.dependencies):
        if dependency.ref not in kept:
            bom.dependencies.remove(dependency)
        else:
            for one in [one for one in dependency.dependencies if one.ref not in kept]:
                dependency.dependencies.remove(one)
    bom.components.update(more)
    bom.register_dependency(root, [*direct_components, *more])
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    if fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"not as the schema wants it: {fault}")
    target.write_text(text + "\n", encoding="utf-8")
    print(f"{target}: {len(bom.components)} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
