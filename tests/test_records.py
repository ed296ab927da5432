"""fnx/records.py: a record is what `dataclass(frozen=True, slots=True)` makes.

The standard library's class, made of the same body, is the oracle.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
from typing import Any

import pytest

from fnx.kernel.ir import Kernel
from fnx.records import record
from fnx.tree import DictKey

NAN = math.nan


class Nothing:
    """No field."""


class One:
    """One field: its comparison is one of tuples, in which a NaN is equal to itself."""

    x: Any


class Two:
    """A default, and names that the made functions use too."""

    self_: Any
    cls: Any = (1, 2)


class Hidden:
    """A field that is not shown, and a method."""

    shown: int
    hidden: int = dataclasses.field(default=7, repr=False)

    def total(self) -> int:
        return self.shown + self.hidden


class Own:
    """Defines itself what a record would."""

    x: int

    def __repr__(self) -> str:
        return f"<{self.x}>"

    def __hash__(self) -> int:
        return 5


BODIES = {
    Nothing: [()],
    One: [(1,), (NAN,), ([],), ("a",)],
    Two: [(1,), (1, 2), (None, (1, 2)), ({}, 0)],
    Hidden: [(1,), (1, 8)],
    Own: [(1,), (2,)],
}
EACH = pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)


def again(body):
    """The class once more: decorators write into the one that they are given."""
    own = {k: v for k, v in vars(body).items() if k not in ("__dict__", "__weakref__")}
    return type(body.__name__, (), own | {"__qualname__": body.__qualname__})


def both(body):
    """The standard library's class and the record of one body."""
    standard = dataclasses.dataclass(frozen=True, slots=True)
    return standard(again(body)), record(again(body))


@EACH
def test_values_texts_and_hashes_are_those_of_a_dataclass(body):
    standard, ours = both(body)
    for arguments in BODIES[body]:
        a, b = standard(*arguments), ours(*arguments)
        assert dataclasses.astuple(a) == dataclasses.astuple(b)
        assert repr(a) == repr(b)
        try:
            wanted = hash(a)
        except TypeError as error:
            with pytest.raises(TypeError, match=str(error)):
                hash(b)
        else:
            assert hash(b) == wanted


@EACH
def test_equality_is_that_of_a_dataclass(body):
    standard, ours = both(body)
    for x in BODIES[body]:
        for y in BODIES[body]:
            assert (ours(*x) == ours(*y)) == (standard(*x) == standard(*y))
            assert (ours(*x) != ours(*y)) == (standard(*x) != standard(*y))
        assert ours(*x) != standard(*x) and ours(*x) != x


@EACH
def test_the_class_is_one_of_slots_with_the_same_fields(body):
    standard, ours = both(body)
    assert ours.__slots__ == standard.__slots__
    assert ours.__match_args__ == standard.__match_args__
    assert ours.__doc__ == body.__doc__ and ours.__module__ == __name__
    assert not hasattr(ours(*BODIES[body][0]), "__dict__")
    for mine, theirs in zip(
        dataclasses.fields(ours), dataclasses.fields(standard), strict=True
    ):
        assert (mine.name, mine.type, mine.default, mine.repr) == (
            theirs.name,
            theirs.type,
            theirs.default,
            theirs.repr,
        )
    names = [*inspect.signature(standard).parameters]
    assert [*inspect.signature(ours).parameters] == names


@EACH
def test_nothing_can_be_written(body):
    made = record(again(body))
    one = made(*BODIES[body][0])
    for name in (*made.__slots__, "another"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"assign .*'{name}'"):
            setattr(one, name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"delete .*'{name}'"):
            delattr(one, name)


@pytest.mark.parametrize("arguments", [(), (1, 2, 3)])
def test_wrong_arguments_raise_as_a_dataclass_does(arguments):
    texts = []
    for made in both(Two):
        with pytest.raises(TypeError) as raised:
            made(*arguments)
        texts.append(str(raised.value))
    assert texts[0] == texts[1] and "Two.__init__()" in texts[0]


def test_replace_match_and_methods():
    made = record(again(Hidden))
    assert dataclasses.replace(made(1), shown=5) == made(5)
    assert dataclasses.replace(made(1), hidden=2).total() == 3
    match made(3):
        case made(shown, hidden=hidden):
            assert (shown, hidden) == (3, 7)
        case _:
            pytest.fail("a record matches its own class")


@record
class Pickled:
    """Found by pickle under its name."""

    x: Any
    y: Any = 2


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_and_copy(protocol):
    one = Pickled([1, Pickled("b")], {3})
    read = pickle.loads(pickle.dumps(one, protocol))
    assert read == one and read.x is not one.x
    assert copy.copy(one).x is one.x
    deep = copy.deepcopy(one)
    assert deep == one and deep.x is not one.x


def test_a_record_in_itself_is_shown():
    inner: list[Any] = []
    one = Pickled(inner)
    inner.append(one)
    assert repr(one) == "Pickled(x=[...], y=2)"


def test_by_identity():
    made = record(eq=False)(again(One))
    one, other = made(1), made(1)
    assert one != other and one == one and len({one, other}) == 2
    assert repr(one) == "One(x=1)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 2


def test_the_records_of_fnx_are_such():
    assert dataclasses.is_dataclass(Kernel) and "key" not in repr(Kernel("k", (), ()))
    assert DictKey("a") == DictKey("a") != DictKey("b")
    assert hash(DictKey("a")) == hash(("a",))
