"""fnx/tree.py and fnx/tree_util.py: meaning, paths, differences, own classes."""

from __future__ import annotations

import functools
import pickle
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx import tree, tree_util
from fnx.errors import ArgumentError, TreeError


class Point(NamedTuple):
    x: object
    y: object


@tree.register_dataclass
@dataclass(frozen=True)
class Layer:
    w: object
    b: object = None
    name: str = tree.static(default="layer")


@tree.register_pytree_node_class
class Pair:
    def __init__(self, first, second, tag="t"):
        self.first, self.second, self.tag = first, second, tag

    def tree_flatten(self):
        return (self.first, self.second), self.tag

    @classmethod
    def tree_unflatten(cls, tag, children):
        return cls(*children, tag)


MIXED = {
    "b": [1, (2, None)],
    "a": Point(3, Layer(4, 5)),
    "c": Pair(6, OrderedDict(k=7)),
}

keys = st.text("abc", min_size=1, max_size=2)
trees = st.recursive(
    st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.builds(Point, inner, inner)
        | st.builds(Layer, inner, inner, st.sampled_from(["p", "q"]))
    ),
    max_leaves=12,
)


# ---------------------------------------------------------------- leaves and structure


def test_order_of_leaves():
    assert tree.leaves(MIXED) == [3, 4, 5, 1, 2, 6, 7]
    assert tree.leaves(None) == []
    assert tree.leaves(5) == [5]
    assert tree.leaves(OrderedDict([("b", 1), ("a", 2)])) == [1, 2]


@given(trees)
def test_flatten_and_unflatten_are_inverse(t):
    values, treedef = tree.flatten(t)
    assert tree.unflatten(treedef, values) == t
    assert treedef == tree.structure(t)
    assert hash(treedef) == hash(tree.structure(t))
    assert [leaf for _, leaf in tree.leaves_with_path(t)] == values
    assert tree.leaves_with_path(t) == tree.flatten_with_path(t)[0]


@given(trees)
def test_map_keeps_the_structure(t):
    doubled = tree.map(lambda x: 2 * x, t)
    assert tree.structure(doubled) == tree.structure(t)
    assert tree.leaves(doubled) == [2 * x for x in tree.leaves(t)]
    assert tree.map(lambda x, y: y - x, t, doubled) == t


@given(trees, trees)
def test_difference_is_empty_just_for_equal_structures(a, b):
    assert (tree.difference(a, b) == "") == (tree.structure(a) == tree.structure(b))


@given(trees)
def test_a_leaf_is_a_prefix_of_everything(t):
    assert tree.leaves(tree.broadcast(9, t)) == [9] * len(tree.leaves(t))
    assert tree.broadcast_prefix(9, t, "what") == [9] * len(tree.leaves(t))
    same = tree.broadcast_prefix(t, t, "what", is_leaf=lambda x: isinstance(x, int))
    assert same == tree.leaves(t)


def test_structures_pickle_and_compare():
    treedef = tree.structure(MIXED)
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert tree.structure({"a": 1}) != tree.structure({"b": 1})
    assert tree.structure([1]) != tree.structure((1,))
    assert tree.structure(Layer(1, name="p")) != tree.structure(Layer(1, name="q"))


def test_is_leaf():
    stop = lambda x: isinstance(x, tuple)  # noqa: E731 - it is used three times
    assert tree.leaves([(1, 2), 3], stop) == [(1, 2), 3]
    assert tree.map(lambda x: str(x), [(1, 2), 3], is_leaf=stop) == ["(1, 2)", "3"]
    assert tree.leaves([None, 1], lambda x: x is None) == [None, 1]


def test_map_takes_a_prefix_of_the_rest():
    assert tree.map(lambda x, y: (x, y), {"a": 1}, {"a": [2, 3]}) == {"a": (1, [2, 3])}


def test_reduce_and_all():
    assert tree.reduce(lambda x, y: x + y, MIXED) == 28
    assert tree.reduce(lambda x, y: [*x, y], (1, 2), []) == [1, 2]
    assert tree.reduce(lambda x, y: x + y, None, 7) == 7
    with pytest.raises(ArgumentError, match="needs `initializer`"):
        tree.reduce(lambda x, y: x + y, {})
    joined = tree.reduce_associative(lambda x, y: f"({x}{y})", list("abcde"))
    assert joined == "(((ab)(cd))e)"
    assert tree.reduce_associative(max, [], identity=0) == 0
    with pytest.raises(ArgumentError, match="needs `identity`"):
        tree.reduce_associative(max, [])
    assert tree.all({}) and tree.all([1, True]) and not tree.all([1, 0])


def test_transpose():
    outer, inner = tree.structure([0, 0]), tree.structure({"a": 0, "b": 0})
    nested = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert tree.transpose(outer, inner, nested) == {"a": [1, 3], "b": [2, 4]}
    assert tree.transpose(outer, None, nested) == {"a": [1, 3], "b": [2, 4]}
    assert tree.transpose(tree.structure([]), inner, []) == {"a": [], "b": []}
    with pytest.raises(TreeError, match=r"inner structure.*\n  at \['b'\]: only in"):
        tree.transpose(outer, inner, [{"a": 1, "b": 2}, {"a": 3}])
    with pytest.raises(TreeError, match=r"a list of length 2.*a list of length 1"):
        tree.transpose(outer, inner, nested[:1])


# ---------------------------------------------------------------- paths and prefixes


def test_paths():
    texts = [tree.keystr(path) for path, _ in tree.leaves_with_path(MIXED)]
    assert texts == [
        "['a'].x",
        "['a'].y.w",
        "['a'].y.b",
        "['b'][0]",
        "['b'][1][0]",
        "['c'][<flat index 0>]",
        "['c'][<flat index 1>]['k']",
    ]
    path = (tree.DictKey("a"), tree.SequenceKey(1), tree.GetAttrKey("w"))
    assert tree.keystr(path, simple=True, separator=".") == "a.1.w"
    assert tree.keystr(path, separator="/") == "['a']/[1]/.w"


@pytest.mark.oracle
def test_paths_are_jax_s(jax):
    plain = {"b": [1, (2, None)], "a": Point(3, 4), "d": defaultdict(int, {2: 5, 1: 6})}
    ours = [(tree.keystr(path), leaf) for path, leaf in tree.leaves_with_path(plain)]
    theirs = jax.tree_util.tree_leaves_with_path(plain)
    assert ours == [(jax.tree_util.keystr(path), leaf) for path, leaf in theirs]


def test_map_with_path():
    named = tree.map_with_path(
        lambda path, x, y: (tree.keystr(path), x, y), {"a": [1]}, {"a": [(2, 3)]}
    )
    assert named == {"a": [("['a'][0]", 1, (2, 3))]}


def test_broadcast_prefix_keeps_none_as_a_value():
    full = ({"a": 1, "b": [2, 3]}, None, 4)
    assert tree.broadcast_prefix((0, None, None), full, "in_axes") == [0, 0, 0, None]
    assert tree.broadcast_prefix(None, full, "in_axes") == [None] * 4
    assert tree.broadcast_prefix(1, tree.structure(full), "out_axes") == [1] * 4
    inner = ({"a": 0, "b": None}, None, 1)
    assert tree.broadcast_prefix(inner, full, "in_axes") == [0, None, None, 1]


PREFIX_ERRORS = [
    ((0, 1), (1, 2, 3), "at the root: in_axes has a tuple of length 2, the tree has a"),
    ((0, {"a": 1}), (1, {"b": 2}), r"at \[1\]\['a'\]: only in in_axes"),
    (
        [0, 1],
        (1, 2),
        "in_axes has a list of length 2, the tree has a tuple of length 2",
    ),
    (
        {"p": (0, 0)},
        {"p": 5},
        r"at \['p'\]: .* a tuple of length 2, the tree has a leaf",
    ),
]


@pytest.mark.parametrize(("prefix", "full", "message"), PREFIX_ERRORS)
def test_prefix_errors_name_argument_and_path(prefix, full, message):
    prefix_ = tree.broadcast_prefix
    with pytest.raises(TreeError, match=message):
        prefix_(prefix, full, "in_axes")


DIFFERENCES = [
    ({"w": 1}, {"w": [1, 2]}, "at ['w']: old has a leaf, new has a list of length 2"),
    ({"w": 1}, {"w": None}, "at ['w']: old has a leaf, new has None"),
    ([1, {"a": 1}], [1, {}], "at [1]['a']: only in old"),
    (
        Point(1, 2),
        (1, 2),
        "at the root: old has a Point with 2 children, new has a tuple",
    ),
    ({}, OrderedDict(), "at the root: old has an empty dict, new has an empty Ordered"),
    (
        Layer(1, 2, "p"),
        Layer(1, 2, "q"),
        "at the root: the static parts of a Layer with",
    ),
    ([Pair(1, [2])], [Pair(1, [2, 3])], "at [0][<flat index 1>]: old has a list of"),
]


@pytest.mark.parametrize(("a", "b", "text"), DIFFERENCES)
def test_differences(a, b, text):
    assert text in tree.difference(a, b, first="old", second="new")
    both = tree.structure(a), tree.structure(b)
    assert text in tree.difference(*both, first="old", second="new")


def test_difference_describes_leaves_and_stays_short():
    a, b = {"w": 1, "v": 2}, {"w": 1.5, "v": 3}
    text = tree.difference(a, b, describe=lambda leaf: type(leaf).__name__)
    assert text == "at ['w']: the first has int, the second has float"
    many = {f"k{i:02}": i for i in range(30)}
    assert tree.difference(many, {}).splitlines()[-1] == "and 20 more"


def test_mismatch_in_map_names_tree_and_path():
    with pytest.raises(TreeError) as caught:
        tree.map(lambda x, y, z: x, {"a": (1, 2)}, {"a": (1, 2)}, {"a": (1,)})
    assert str(caught.value) == (
        "tree.map: tree 3 does not have the structure of the first tree:\n"
        "  at ['a']: the first tree has a tuple of length 2, "
        "tree 3 has a tuple of length 1"
    )


def test_unflatten_counts_leaves():
    with pytest.raises(TreeError, match="has 2 leaves, got 3"):
        tree.unflatten(tree.structure([0, 0]), [1, 2, 3])


# ---------------------------------------------------------------- own classes


def test_dataclass_fields_are_divided():
    @tree.register_dataclass
    @dataclass
    class Marked:
        a: object
        b: object = field(default=1, metadata={"static": True})

    assert tree.leaves(Marked(5, 6)) == [5]

    @functools.partial(tree.register_dataclass, meta_fields=["a"])
    @dataclass
    class Named:
        a: object
        b: object = 2

    assert tree.leaves(Named(5, 6)) == [6]

    @tree.register_dataclass(data_fields=["a"], drop_fields=["c"])
    @dataclass
    class Dropped:
        a: object
        b: object = 2
        c: object = 3

    assert tree.map(lambda x: -x, Dropped(1, 7, 8)) == Dropped(-1, 7, 3)


def test_register_dataclass_on_a_plain_class():
    class Plain:
        def __init__(self, a, b):
            self.a, self.b = a, b

    tree.register_dataclass(Plain, data_fields=["a"], meta_fields=["b"])
    assert tree.leaves(Plain(1, 2)) == [1]
    assert tree.map(str, Plain(1, 2)).a == "1"


def test_register_dataclass_errors():
    class NoDataclass:
        pass

    with pytest.raises(ArgumentError, match="is no dataclass"):
        tree.register_dataclass(NoDataclass)

    @dataclass
    class Two:
        a: object
        b: object

    with pytest.raises(ArgumentError, match=r"Two has no field .* named z; it has a"):
        tree.register_dataclass(Two, data_fields=["z"])
    with pytest.raises(ArgumentError, match="Two has fields in no list: b"):
        tree.register_dataclass(Two, data_fields=["a"], meta_fields=[])
    tree.register_dataclass(Two)
    with pytest.raises(ArgumentError, match="cannot register"):
        tree.register_dataclass(Two)


def test_nodes_with_keys():
    class Keyed:
        def __init__(self, left, right):
            self.left, self.right = left, right

        def tree_flatten_with_keys(self):
            named = [("left", self.left), ("right", self.right)]
            return [(tree.GetAttrKey(name), child) for name, child in named], None

        @classmethod
        def tree_unflatten(cls, static, children):
            return cls(*children)

    tree.register_pytree_with_keys_class(Keyed)
    (_, (path, leaf)) = tree.leaves_with_path(Keyed(1, [2]))
    assert (tree.keystr(path), leaf) == (".right[0]", 2)


def test_register_static():
    @tree.register_static
    @dataclass(frozen=True)
    class Option:
        size: int

    assert tree.leaves([Option(3), 1]) == [1]
    assert tree.map(str, [Option(3), 1]) == [Option(3), "1"]
    assert tree.structure(Option(3)) == tree.structure(Option(3))
    assert tree.structure(Option(3)) != tree.structure(Option(4))


def test_partial():
    bound = tree.Partial(pow, 2, mod=5)
    assert bound(3) == 3
    assert tree.leaves(bound) == [2, 5]
    assert tree.map(lambda x: x + 1, bound)(3) == 3
    assert tree.structure(bound) == tree.structure(tree.Partial(pow, 7, mod=8))
    held = tree.Partial(functools.partial(pow, 2), 3)
    assert held() == 8
    assert tree.leaves(held) == [3]
    assert tree.leaves(tree.Partial(tree.Partial(pow, 2), 3)) == [2, 3]


# ---------------------------------------------------------------- tree_util


def test_tree_util_has_the_functions_of_tree():
    for name in ("all", "broadcast", "flatten", "flatten_with_path", "leaves", "map"):
        assert getattr(tree_util, f"tree_{name}") is getattr(tree, name)
    assert tree_util.Partial is tree.Partial


@pytest.mark.oracle
def test_tree_util_has_jax_s_names(jax):
    internal = {"default_registry"}  # the handle of jaxlib's registry object
    theirs = {name for name in vars(jax.tree_util) if not name.startswith("_")}
    assert theirs - internal <= set(tree_util.__all__)
    in_tree = {name for name in vars(jax.tree) if not name.startswith("_")}
    assert in_tree <= set(tree.__all__)


def test_one_level():
    assert tree_util.flatten_one_level([1, (2, 3)])[0] == [1, (2, 3)]
    pairs, _ = tree_util.flatten_one_level_with_keys(Layer(1, [2]))
    assert pairs == [(tree.GetAttrKey("w"), 1), (tree.GetAttrKey("b"), [2])]
    with pytest.raises(ArgumentError, match="the leaf 3"):
        tree_util.flatten_one_level(3)


def test_is_tree_node():
    unregistered = namedtuple("unregistered", "x y")
    for kind in (dict, list, tuple, OrderedDict, type(None), Layer, Pair, unregistered):
        assert tree.is_tree_node(kind), kind
    for kind in (int, str, object, set):
        assert not tree.is_tree_node(kind), kind


def test_treedefs():
    treedef = tree.structure((1, [2, 3]))
    assert tree_util.treedef_tuple(tree_util.treedef_children(treedef)) == treedef
    assert tree_util.treedef_is_leaf(tree.structure(1))
    assert not tree_util.treedef_is_leaf(tree.structure(None))
    assert tree_util.all_leaves([1, 2]) and not tree_util.all_leaves([1, None])
