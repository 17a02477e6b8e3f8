"""Print what some extras of the package need, a line each: pinned, with the hashes of its files. Used by bootstrap.

::

    requirements.py EXTRA...           the package with these extras: all that pip installs, so that it resolves nothing
    requirements.py --build            what its build needs
    requirements.py --group NAME       a dependency group
    requirements.py --ranges           what pyproject.toml says of all of these, unpinned: what `make constraints` pins

The pins are those of `constraints.txt`. There each package is followed by those on whose behalf it is there ("via").
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

HERE = Path(__file__).parent
FACTS = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = FACTS["project"]


def canonical(requirement: str) -> str:
    """Return the name of a requirement as indexes write it."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


def with_extras(extras: Iterable[str]) -> list[str]:
    """Return what the package asks for with these extras."""
    own, left = f"{PROJECT['name']}[", list(extras)
    found = list(PROJECT["dependencies"])
    while left:
        for line in PROJECT["optional-dependencies"][left.pop()]:
            if line.startswith(own):  # an extra that names others of this package
                left += line[len(own) : -1].split(",")
            else:
                found.append(line)
    return sorted(set(found))


def pins(text: str) -> dict[str, tuple[list[str], set[str]]]:
    """Return of each package its lines (one a version, as markers choose), and the packages that ask for it."""
    found: dict[str, tuple[list[str], set[str]]] = {}
    for line in text.splitlines():
        if re.match(r"[A-Za-z0-9]", line):
            name = canonical(line)
            lines, parents = found.setdefault(name, ([], set()))
            lines.append(line.rstrip("\\ "))
        elif line.startswith("    --hash"):
            lines[-1] += " " + line.strip("\\ ")
        elif (by := re.match(r" +#(?: via)? +([A-Za-z0-9][A-Za-z0-9._-]*)", line)) and by[1] != "via":
            parents.add(canonical(by[1]))
    return found


def pinned(requirements: Iterable[str]) -> list[str]:
    """Return the pins of these requirements and of all that they bring.

    Raises
    ------
    SystemExit
        One of them has no pin.
    """
    known = pins((HERE / "constraints.txt").read_text(encoding="utf-8"))
    chosen, new = set(), {canonical(one) for one in requirements}
    if lacking := sorted(new - known.keys()):
        sys.exit(f".ci/constraints.txt does not have {', '.join(lacking)}: make constraints")
    while new:
        chosen |= new
        new = {name for name, (_, parents) in known.items() if parents & new} - chosen
    return [line for name in sorted(chosen) for line in known[name][0]]


def main(arguments: list[str]) -> None:
    """Print what the command line asks for."""
    build, groups = FACTS["build-system"]["requires"], FACTS["dependency-groups"]
    if arguments == ["--ranges"]:
        every = [
            *with_extras(PROJECT["optional-dependencies"]),
            *build,
            *(one for group in groups.values() for one in group),
        ]
        print("\n".join(sorted(set(every))))
    elif arguments == ["--build"]:
        print("\n".join(pinned(build)))
    elif arguments[:1] == ["--group"]:
        print("\n".join(pinned(groups[arguments[1]])))
    else:
        print("\n".join(pinned(with_extras(arguments))))


if __name__ == "__main__":
    main(sys.argv[1:])
