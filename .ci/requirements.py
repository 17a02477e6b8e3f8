"""Print what the package and some of its extras need, a line each. Used by bootstrap.

::

    requirements.py EXTRA...
    requirements.py --build      what its build needs

pip installs these while the compiler is still on its way; the package itself follows with its kernels.
"""

import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

facts = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
project = facts["project"]
own = f"{project['name']}["
found, left = list(project["dependencies"]), sys.argv[1:]
if left == ["--build"]:
    found, left = facts["build-system"]["requires"], []
while left:
    for line in project["optional-dependencies"][left.pop()]:
        if line.startswith(own):  # an extra that names others of this package
            left += line[len(own) : -1].split(",")
        else:
            found.append(line)
print("\n".join(sorted(set(found))))
