"""The border between Python and the compiled kernels: one list of names, and each name called the same on both sides.

::

    engine ──► KernelModule (type) ◄── mypy ──── engine.reference       the twins
                                   ◄── mypy ──── _kernels.pyi           the stub ◄── these tests ──► the compiled module

mypy compares types. Compiled code has none, so these tests compare its names and signatures.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import FunctionType

import pytest

import streamjoin_ds
from streamjoin_ds import _kernels as facade
from streamjoin_ds._kernels import native
from streamjoin_ds.engine import reference
from streamjoin_ds.engine.reference import kernel_objects
from streamjoin_ds.engine.reference.kernel_module import KernelModule

STUB = ast.parse((Path(streamjoin_ds.__file__).parent / "_kernels.pyi").read_text(encoding="utf-8"))

NATIVE_ONLY = {
    "scan_roof": "measures the compiled loop itself; the twin has none",
    "set_default_implementation": "the twins have one implementation",
}
TASKS = "the class of a kernel's task: it holds the C arguments, and Python knows it as a Task"
NATIVE_TASKS = dict.fromkeys(
    (
        "Copying",
        "Filling",
        "Gathering",
        "Inserting",
        "Ordering",
        "PairCounting",
        "PairFilling",
        "RunsCounting",
        "Sealing",
        "Sweeping",
        "WindowsFilling",
    ),
    TASKS,
)
# Methods by which the twins ask each other; the compiled kernels do so in C.
TWIN_ONLY_MEMBERS = {
    "BatchColumns": {"column"},
    "BucketGrid": {"bucket_of", "rows_of"},
    "ByteColumn": {"value"},
    "RunColumns": {"dtypes", "item_bytes"},
    "RunIndex": {"may_match"},
    "Task": {"take", "done", "finish"},
}
# The twins keep these as attributes of their objects, which a class does not list.
TWIN_ATTRIBUTES = {
    "BatchColumns": {"batch", "rows"},
    "BatchForm": {"schema"},
    "BucketGrid": {"buckets", "columns", "inserted", "swept"},
    "ThreadPool": {"helpers"},
    "RunsProbe": {"candidates"},
    "SealForm": {"keys"},
}

# Name, kind and default of each parameter.
Parameters = list[tuple[str, str, str]]
CLASSES = sorted(name for name in reference.__all__ if inspect.isclass(getattr(reference, name)))
FUNCTIONS = sorted(name for name in reference.__all__ if isinstance(getattr(reference, name), FunctionType))
CONSTANTS = sorted(set(reference.__all__) - {*CLASSES, *FUNCTIONS})


def parameters(call: object) -> Parameters:
    """Return each parameter's name, kind and default, but for `self`."""
    found = inspect.signature(call).parameters.values()
    return [
        (each.name, each.kind.name, "" if each.default is each.empty else repr(each.default))
        for each in found
        if each.name != "self"
    ]


def written(arguments: ast.arguments) -> Parameters:
    """Return what `parameters` returns, of a signature in source text."""
    text = ast.unparse(ast.fix_missing_locations(_without_types(arguments)))
    names: dict[str, object] = {}
    exec(f"def call({text}): ...", {}, names)
    return parameters(names["call"])


def _without_types(arguments: ast.arguments) -> ast.arguments:
    for each in ast.walk(arguments):
        if isinstance(each, ast.arg):
            each.annotation = None
    return arguments


def constructor(name: str) -> Parameters:
    """Return the parameters of a compiled class's constructor, read from its docstring.

    Cython writes the signature into the first line of the docstring, with C types before some names and the star in the
    wrong place (3.3.1). How many parameters may be given by position is read from the error that too many of them
    raise.
    """
    kind = getattr(native, name)
    line = (kind.__doc__ or "").splitlines()[0]
    match = re.fullmatch(rf"{name}\((.*)\)", line)
    assert match is not None, f"{name} does not say how it is made: {line}"
    plain = [re.sub(r"^\w+ (?=\w)", "", each) for each in match[1].split(", ") if each not in ("*", "")]
    with pytest.raises(TypeError, match=r"takes .* \d+ positional arguments?") as caught:
        kind(*[None] * 99)
    positional = int(re.findall(r"\d+", str(caught.value))[0])
    (function,) = ast.parse(f"def call({', '.join([*plain[:positional], '*_', *plain[positional:]])}): ...").body
    assert isinstance(function, ast.FunctionDef)
    return [each for each in written(function.args) if each[0] != "_"]


def members(kind: type) -> set[str]:
    """Return the public methods and properties of a class, those of its bases too."""
    return {name for name in dir(kind) if not name.startswith("_")}


def stub_members(name: str) -> dict[str, ast.FunctionDef]:
    """Return the functions of a class of the stub by name, those of its bases too."""
    (found,) = (node for node in STUB.body if isinstance(node, ast.ClassDef) and node.name == name)
    own = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
    inherited = [base.id for base in found.bases if isinstance(base, ast.Name)]
    return {**(stub_members(inherited[0]) if inherited else {}), **own}


def test_both_sides_have_the_same_names():
    own = {name for name, thing in vars(native).items() if getattr(thing, "__module__", "") == native.__name__}
    constants = {name for name, thing in vars(native).items() if isinstance(thing, int) and not name.startswith("_")}
    public = {name for name in own | constants if not name.startswith("_")}
    assert public - {*NATIVE_ONLY, *NATIVE_TASKS} == set(reference.__all__)
    assert public >= {*NATIVE_ONLY, *NATIVE_TASKS}, "a name that is gone need not be excused"


def test_the_facade_hands_on_every_name():
    assert {*reference.__all__, "native"} == set(facade.__all__)
    assert [name for name in reference.__all__ if getattr(facade, name) is not getattr(native, name)] == []
    with pytest.raises(AttributeError, match="scan_rooof"):
        _ = facade.scan_rooof


def test_the_type_and_the_stub_have_every_name():
    typed = {name for name in {*vars(KernelModule), *KernelModule.__annotations__} if not name.startswith("_")}
    assert typed == set(reference.__all__) - {"Task"}
    in_stub = {
        getattr(node, "name", None) or getattr(getattr(node, "target", None), "id", "")
        for node in STUB.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AnnAssign))
    }
    assert in_stub == {*reference.__all__, *NATIVE_ONLY}
    (listed,) = (node.value for node in STUB.body if isinstance(node, ast.Assign) and "__all__" in ast.dump(node))
    assert sorted(ast.literal_eval(listed)) == sorted(facade.__all__)


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_equal(name):
    assert getattr(native, name) == getattr(reference, name)


@pytest.mark.parametrize("name", [*FUNCTIONS, *NATIVE_ONLY])
def test_functions_are_called_alike(name):
    (found,) = (node for node in STUB.body if isinstance(node, ast.FunctionDef) and node.name == name)
    compiled = parameters(getattr(native, name))
    assert written(found.args) == compiled
    if name not in NATIVE_ONLY:
        assert parameters(getattr(reference, name)) == compiled


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_members(name):
    compiled = members(getattr(native, name))
    twin = members(getattr(reference, name))
    assert twin.isdisjoint(TWIN_ATTRIBUTES.get(name, ()))
    assert (twin | TWIN_ATTRIBUTES.get(name, set())) - TWIN_ONLY_MEMBERS.get(name, set()) == compiled
    assert TWIN_ONLY_MEMBERS.get(name, set()) <= twin, "a name that is gone need not be excused"
    assert {each for each in stub_members(name) if not each.startswith("_")} == compiled
    typed = {"BucketIndex": "RunIndex", "GridProbe": "Probing", "Scan": "Probing"}.get(name, name)
    assert members(getattr(kernel_objects, typed)) == compiled


# `Task` is left out: other objects make tasks, and what its constructor takes is each side's own.
@pytest.mark.parametrize("name", [name for name in CLASSES if name != "Task"])
def test_classes_are_made_alike(name):
    made = written(stub_members(name)["__init__"].args)
    assert parameters(getattr(reference, name)) == made
    assert constructor(name) == made


@pytest.mark.parametrize("name", CLASSES)
def test_methods_are_called_alike(name):
    for member, stub in stub_members(name).items():
        compiled = getattr(getattr(native, name), member)
        if member.startswith("_") or not callable(compiled):
            assert member.startswith("__") or ast.unparse(stub.decorator_list[0]) == "property"
            continue
        assert written(stub.args) == parameters(compiled), member
        assert parameters(getattr(getattr(reference, name), member)) == parameters(compiled), member
