"""The rows of a call path's table, and pieces of the machine code that reads them.

Gives the words of a table's head, the operations of its rows, and the LLVM text that
loads a word of a head, of a row or of a call's frame (`walker.py` says what those are).
Next on the walk: `table.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from fnx.records import record

# A row of a table: an operation and its operands.
ROW_WORDS = 6
NO_MATCH = 1  # what `enter` gives where the arguments are not those of a table


class Word(IntEnum):
    """The words of a table's head."""

    POSITIONAL = 0  # how many arguments have no name
    NAMED = 1  # how many have one
    NAMES = 2  # the address of their names
    BITS = 3  # the default width of dtypes under which it was traced
    STRONG_ZERO = 4  # config.strong_zero under which it was traced
    CHECKS = 5  # first row of each kind; each kind ends where the next begins
    OUTPUTS = 6
    RESULTS = 7
    END = 8
    FRAME = 9  # words of the frame
    HELD = 10  # frame: the first array that is held, and behind the last
    HELD_END = 11
    POINTERS = 12  # frame: the pointers for the plan; the last one is the arena's
    ARENA_POINTER = 13
    ARENA = 14  # bytes of the arena
    ARENA_CELL = 15  # the address of the word that keeps a free arena
    STACK = 16  # frame: where the result is built
    RUN = 17  # the plan's function
    RELEASE = 18  # whether other Python threads may run meanwhile
    HITS = 19  # counts the calls
    DATA = 20  # the second argument of the plan's function


class Check(IntEnum):
    """Rows that check the arguments."""

    LOAD = 0
    SAME = 1
    ARRAY = 2
    NUMPY = 3
    DICT = 4
    ITEM = 5
    LIST = 6
    TUPLE = 7
    FLOAT32 = 8
    FLOAT64 = 9
    INTEGER = 10
    BOOL = 11
    INTEGER32 = 12
    INTEGER64 = 13
    SLICE = 14
    INDEX = 15


class Build(IntEnum):
    """Rows that build the result; each leaves one value on the stack."""

    ARRAY = 0
    CONSTANT = 1
    VIEW = 2
    OBJECT = 3
    DICT = 4
    LIST = 5
    TUPLE = 6
    CALL = 7
    DATA = 8
    ARGUMENT = 9


@record
class Caller:
    """A class of functions, by addresses."""

    name: str  # of its method in the module
    paths: int  # the slot of a function that holds its tables
    slow: int  # the Python function behind
    disabled: int | None  # a context variable that is False while calls may be native


@record
class Site:
    """The objects that the code knows by their addresses."""

    array: int  # the class of arrays and its slots
    array_data: int
    array_type: int
    type_dtype: int  # a slot of the class of types
    makers: Mapping[str, int]  # the Python functions behind those of `making.py`
    busy: int  # a list that is empty while native calls are allowed
    bits: int  # the context variable of the default width of dtypes
    strong_zero: int  # the address of the option's slot in `config`
    callers: tuple[Caller, ...]
    members: tuple[int, ...]  # the functions behind the methods of arrays


def address(value: int) -> str:
    """An address that is known now, as a constant."""
    return f"inttoptr (i64 {value} to ptr)"


def at(name: str, base: str, offset: int, type_: str = "ptr") -> str:
    """Loads what lies some bytes into an object."""
    return (
        f"{name}.at = getelementptr i8, ptr {base}, i64 {offset}\n"
        f"  {name} = load {type_}, ptr {name}.at"
    )


def head(name: str, word: Word, type_: str = "i64") -> str:
    """Loads a word of the table's head."""
    return at(name, "%table", 8 * word, type_)


def field(name: str, letter: str, type_: str = "i64", row: str = "%row") -> str:
    """Loads an operand of a row: 'a' to 'e'; its operation is '@'."""
    return at(name, row, 8 * "@abcde".index(letter), type_)


def frame(name: str, number: str, type_: str | None = None) -> str:
    """The place of a word of the frame (`name.at`), and its value if asked for."""
    place = f"{name}.at = getelementptr i64, ptr %frame, i64 {number}"
    return (
        place if type_ is None else f"{place}\n  {name} = load {type_}, ptr {name}.at"
    )


def put(name: str, letter: str, value: str, type_: str = "ptr") -> str:
    """Stores a value in the word of the frame that a row's operand names."""
    return (
        f"{field(f'{name}.n', letter)}\n  {frame(name, f'{name}.n')}\n"
        f"  store {type_} {value}, ptr {name}.at"
    )


def switch(operations: type[IntEnum]) -> str:
    """Goes to the label of a row's operation."""
    cases = " ".join(f"i64 {op.value}, label %{op.name.lower()}" for op in operations)
    return f"switch i64 %op, label %unknown [ {cases} ]"
