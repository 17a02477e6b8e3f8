"""The border between Python and the compiled kernels: the contract's names, each called the same on both sides.

::

    engine ──► contract, objects (types) ◄── mypy ──────── twins
                                         ◄── these tests ► the compiled module ◄── these tests ► twins

mypy compares types. Compiled code has none, so these tests compare its names and signatures.
"""

from __future__ import annotations

import inspect
import re
from types import FunctionType

import pytest

from streamjoin_ds import _kernels
from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import objects, twins
from streamjoin_ds.engine.kernels.contract import KernelModule, NativeModule


def typed(kind: type) -> set[str]:
    """Return the public names that a type has itself: functions, properties and annotated constants."""
    return {name for name in {*vars(kind), *inspect.get_annotations(kind)} if not name.startswith("_")}


# Other objects make tasks, so nothing asks a module for one, and its constructor takes what each side needs.
NAMES = typed(KernelModule) | {"Task"}
NATIVE_ONLY = typed(NativeModule)
TASKS = "the class of a kernel's task: it holds the C arguments, and Python knows it as a Task"
NATIVE_TASKS = dict.fromkeys(
    (
        "Copying",
        "Filling",
        "Gathering",
        "Inserting",
        "Matching",
        "Ordering",
        "PairCounting",
        "PairFilling",
        "RunsCounting",
        "Sealing",
        "Sweeping",
        "Taking",
        "WindowsFilling",
    ),
    TASKS,
)
# Methods by which the twins ask each other; the compiled kernels do so in C.
TWIN_ONLY_MEMBERS = {
    "BatchColumns": {"column"},
    "BucketGrid": {"bucket_of", "rows_of"},
    "ByteColumn": {"value"},
    "PartnerSums": {"add"},
    "RunColumns": {"dtypes", "item_bytes", "run_rows"},
    "RunIndex": {"may_match"},
    "RunsProbe": {"count", "run_rows"},
    "Task": {"take", "done", "finish"},
}
# The twins keep these as attributes of their objects, which a class does not list.
TWIN_ATTRIBUTES = {
    "BatchColumns": {"batch", "rows"},
    "BatchForm": {"schema"},
    "BucketGrid": {"buckets", "columns", "inserted", "swept"},
    "ThreadPool": {"helpers"},
    "NearestPairs": {"is_exact"},
    "RunsProbe": {"candidates"},
    "SealForm": {"keys"},
}

# Name, kind and default of each parameter.
Parameters = list[tuple[str, str, str]]
CLASSES = sorted(name for name in NAMES if inspect.isclass(getattr(twins, name)))
FUNCTIONS = sorted(name for name in NAMES if isinstance(getattr(twins, name), FunctionType))
CONSTANTS = sorted(NAMES - {*CLASSES, *FUNCTIONS})


def parameters(call: object) -> Parameters:
    """Return each parameter's name, kind and default, but for `self`."""
    found = inspect.signature(call).parameters.values()
    return [
        (each.name, each.kind.name, "" if each.default is each.empty else repr(each.default))
        for each in found
        if each.name != "self"
    ]


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
    names: dict[str, object] = {}
    exec(f"def call({', '.join([*plain[:positional], '*_', *plain[positional:]])}): ...", {}, names)
    return [each for each in parameters(names["call"]) if each[0] != "_"]


def members(kind: type) -> set[str]:
    """Return the public methods and properties of a class, those of its bases too."""
    return {name for name in dir(kind) if not name.startswith("_")}


def of_objects(name: str) -> type:
    """Return the type of what a class of this name makes."""
    return getattr(objects, {"BucketIndex": "RunIndex", "GridProbe": "Probing", "Scan": "Probing"}.get(name, name))


def test_both_sides_have_the_names_of_the_contract():
    own = {name for name, thing in vars(native).items() if getattr(thing, "__module__", "") == native.__name__}
    constants = {name for name, thing in vars(native).items() if isinstance(thing, int) and not name.startswith("_")}
    public = {name for name in own | constants if not name.startswith("_")}
    assert public - {*NATIVE_ONLY, *NATIVE_TASKS} == NAMES == set(twins.__all__)
    assert public >= {*NATIVE_ONLY, *NATIVE_TASKS}, "a name that is gone need not be excused"


def test_nothing_else_is_handed_out():
    assert set(_kernels.__all__) == {"default_implementation", "native"}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_equal(name):
    assert getattr(native, name) == getattr(twins, name)


@pytest.mark.parametrize("name", [*FUNCTIONS, *sorted(NATIVE_ONLY)])
def test_functions_are_called_alike(name):
    compiled = parameters(getattr(native, name))
    assert parameters(getattr(NativeModule, name)) == compiled
    if name not in NATIVE_ONLY:
        assert parameters(getattr(twins, name)) == compiled


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_members(name):
    compiled = members(getattr(native, name))
    twin = members(getattr(twins, name))
    assert twin.isdisjoint(TWIN_ATTRIBUTES.get(name, ()))
    assert (twin | TWIN_ATTRIBUTES.get(name, set())) - TWIN_ONLY_MEMBERS.get(name, set()) == compiled
    assert TWIN_ONLY_MEMBERS.get(name, set()) <= twin, "a name that is gone need not be excused"
    assert members(of_objects(name)) == compiled


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "Task"])
def test_classes_are_made_alike(name):
    made = parameters(getattr(KernelModule, name))
    assert parameters(getattr(twins, name)) == made
    assert constructor(name) == made


@pytest.mark.parametrize("name", CLASSES)
def test_methods_are_called_alike(name):
    for member in members(of_objects(name)):
        compiled, typed_as = getattr(getattr(native, name), member), getattr(of_objects(name), member)
        if not callable(compiled):
            assert isinstance(typed_as, property), member
            continue
        assert parameters(typed_as) == parameters(compiled), member
        assert parameters(getattr(getattr(twins, name), member)) == parameters(compiled), member
