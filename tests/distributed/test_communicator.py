"""fnx/distributed/communicator.py over connections between threads: values and errors.

The oracle is NumPy on the arrays of all ranks.
"""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest

import fnx
from fnx.distributed.channel import Meeting, as_bytes
from fnx.distributed.communicator import fold
from fnx.errors import CollectiveError
from tests.distributed.threads import close, connected, on_all, together

DTYPES = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 "
    "float64 complex64 complex128"
).split()
# Around what is sent as a whole, and what does not divide by the number of ranks.
SHAPES = [(), (0,), (1,), (3, 5), (16 * 1024 + 1,), (2, 70_001)]


@pytest.fixture(scope="module")
def three():
    communicators = connected(3)
    yield communicators
    close(communicators)


def arrays(rng, count, shape, dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = rng.normal(size=(count, *shape)) * 100
    if dtype.kind == "c":
        values = values + 1j * rng.normal(size=values.shape)
    if dtype.kind in "iu":
        return rng.integers(0, 256, (count, *shape)).astype(dtype)
    return (values > 0 if dtype.kind == "b" else values).astype(dtype)


def summed(xs):
    """((x0 + x1) + x2)…, 16-bit floats in float32."""
    narrow = xs.dtype.itemsize == 2 and xs.dtype.kind not in "iu"
    total = np.array(xs[0], np.float32 if narrow else xs.dtype)
    for x in xs[1:]:
        np.add(total, x.astype(total.dtype), out=total)  # arrays of numbers wrap
    return total.astype(xs.dtype)


def same_bits(results, expected):
    for result in results:
        if isinstance(result, BaseException):
            raise result
        assert result.dtype == expected.dtype and result.shape == expected.shape
        assert result.tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_sums_are_in_the_order_of_the_ranks(three, rng, dtype):
    for shape in SHAPES:
        xs = arrays(rng, 3, shape, dtype)

        def reduce(c, xs=xs):
            out = np.empty(xs.shape[1:], xs.dtype)
            c.all_reduce(xs[c.rank, ...], out, "sum")
            return out

        same_bits(on_all(three, reduce), summed(xs))


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("op", ["max", "min"])
def test_extremes_keep_nan(three, rng, dtype, op):
    xs = arrays(rng, 3, (4, 9001), dtype)
    if xs.dtype.kind not in "bi":
        xs[1, 2, 5] = xs[0, 3, 9000] = xs[2, 0, 0] = np.nan
        xs[0, 1, 1], xs[2, 1, 1] = np.inf, -np.inf
    function = {"max": np.maximum, "min": np.minimum}[op]

    def reduce(c):
        out = np.empty_like(xs[0])
        c.all_reduce(xs[c.rank], out, op)
        return out

    wide = np.float32 if xs.dtype.itemsize == 2 else xs.dtype
    for result in on_all(three, reduce):
        expected = function.reduce(xs.astype(wide), axis=0)
        np.testing.assert_array_equal(result.astype(wide), expected)


def test_several_arrays_of_a_process_are_summed_in_the_order_of_all(three, rng):
    for size in (7, 20_001):
        xs = arrays(rng, 6, (size,), "float32")

        def reduce(c, xs=xs):
            out = np.empty_like(xs[0])
            c.all_reduce_rows([xs[2 * c.rank], xs[2 * c.rank + 1]], out, "sum")
            return out

        same_bits(on_all(three, reduce), summed(xs))


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "complex64", "int64"])
def test_movement(three, rng, dtype):
    for shape in SHAPES:
        xs = arrays(rng, 3, (3, *shape), dtype)

        def move(c, xs=xs):
            x = xs[c.rank]
            gathered, exchanged = np.empty((3, *x.shape), x.dtype), np.empty_like(x)
            c.all_gather(x, gathered)
            c.all_to_all(x, exchanged)
            rotated, some = np.empty_like(x), np.full_like(x, 1)
            c.permute(x, rotated, [(0, 1), (1, 2), (2, 0)])
            c.permute(x, some, [(1, 0), (2, 2)])
            from_two = x.copy()
            c.broadcast(from_two, 2)
            return gathered, exchanged, rotated, some, from_two

        for rank, result in enumerate(on_all(three, move)):
            zeros = np.zeros_like(xs[0])
            expected = (
                xs,
                xs[:, rank],
                xs[rank - 1],
                [xs[1], zeros, xs[2]][rank],
                xs[2],
            )
            for found, wanted in zip(result, expected, strict=True):
                same_bits([found], wanted)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_reduce_scatter(three, rng, dtype):
    for shape in SHAPES:
        xs = arrays(rng, 3, (3, *shape), dtype)

        def reduce(c, xs=xs):
            out = np.empty(xs.shape[2:], xs.dtype)
            c.reduce_scatter(xs[c.rank], out)
            return out

        for rank, result in enumerate(on_all(three, reduce)):
            same_bits([result], np.asarray(summed(xs[:, rank])))


def test_groups_meet_apart(three):
    def meet(c):
        part = c.split([[2, 0], [1]])
        out = np.empty((part.size, 1), "int32")
        part.all_gather(np.array([10 + c.rank], "int32"), out)
        return part.rank, out.ravel().tolist()

    assert on_all(three, meet) == [(1, [12, 10]), (0, [11]), (0, [12, 10])]


def test_a_row_alone_is_itself(rng):
    x = arrays(rng, 1, (5,), "bfloat16")
    out = np.empty_like(x[0])
    fold([x[0]], out, "sum")
    same_bits([out], x[0])


# ---------------------------------------------------------------- errors


def texts(results):
    assert all(isinstance(error, CollectiveError) for error in results), results
    return [str(error) for error in results]


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        (lambda c: c.barrier("lunch"), "barrier(lunch)"),
        (
            lambda c: c.all_reduce(np.zeros(4), np.zeros(4), "sum"),
            "all_reduce(f64[4], sum)",
        ),
        (
            lambda c: c.all_reduce(
                np.zeros(3, "float32"), np.zeros(3, "float32"), "sum"
            ),
            "all_reduce(f32[3], sum)",
        ),
        (
            lambda c: c.all_reduce(np.zeros(3), np.zeros(3), "max"),
            "all_reduce(f64[3], max)",
        ),
        (
            lambda c: c.permute(np.zeros(3), np.zeros(3), [(0, 1)]),
            "permute(f64[3], ((0, 1),))",
        ),
    ],
)
def test_another_collective_is_an_error_on_every_rank(three, odd, shown):
    def call(c):
        if c.rank == 1:
            odd(c)
        else:
            c.all_reduce(np.zeros(3), np.zeros(3), "sum")

    for rank, text in enumerate(texts(on_all(three, call))):
        assert f"on process {rank}: not all processes do the same" in text
        assert f"process 1: collective {three[0]._meetings}, {shown}\n" in text
        assert "processes 0, 2: collective " in text
        assert "all_reduce(f64[3], sum)" in text
    # nothing was on its way: they can go on
    assert on_all(three, lambda c: c.barrier()) == [None] * 3


@pytest.fixture
def pair():
    communicators = connected(2)
    yield communicators
    close(communicators)


def test_who_fails_tells_the_others(pair):
    def call(c):
        if c.rank == 1:
            c.fail(ValueError("a bad day"))
        c.all_reduce(np.zeros(10**6), np.zeros(10**6), "sum")

    for text in texts(on_all(pair, call)):
        assert "process 1 failed: ValueError: a bad day" in text
        assert "from its last checkpoint" in text
    for text in texts(on_all(pair, lambda c: c.barrier())):  # and it stays so
        assert "a bad day" in text


def test_groups_hear_of_it(pair):
    groups = on_all(pair, lambda c: c.split([[0, 1]]))
    pair[0].fail(ValueError("a bad day"))
    with pytest.raises(CollectiveError, match="a bad day"):
        groups[1].barrier()


def test_who_is_gone_is_noticed_at_once(pair):
    def call(c):
        if c.rank == 1:
            time.sleep(0.1)
            for connection in c.channel._peers.values():
                connection.close()  # as its end would
        else:
            c.barrier()

    start = time.monotonic()
    first, _ = on_all(pair, call)
    assert "process 1 has ended" in texts([first])[0]
    assert time.monotonic() - start < 5


def test_who_does_not_come_is_named(pair):
    def call(c):
        if c.rank == 0:
            c.all_gather(np.zeros(7), np.zeros((2, 7)))

    with fnx.config.override(collective_timeout=1):
        start = time.monotonic()
        (first, _) = on_all(pair, call)
        waited = time.monotonic() - start
    assert 1 <= waited < 5
    (text,) = texts([first])
    assert "collective 1, all_gather(f64[7]) on process 0" in text
    assert "process 1 has not come within 1 s (fnx.config.collective_timeout)" in text
    with pytest.raises(CollectiveError, match="process 1 has not come"):
        pair[1].barrier()  # it comes too late, and hears that


def test_who_waits_ends_when_its_own_process_fails(pair):
    def wait():
        pair[0].barrier()

    def fail():
        time.sleep(0.3)
        pair[0].fail(KeyError("elsewhere"))

    start = time.monotonic()
    waiting, _ = together([wait, fail])
    assert time.monotonic() - start < 10
    assert "process 0 failed: KeyError: 'elsewhere'" in texts([waiting])[0]
    with pytest.raises(CollectiveError, match="elsewhere"):
        pair[1].barrier()


def test_many_ranks_agree_in_few_rounds(pair, monkeypatch):
    monkeypatch.setattr("fnx.distributed.channel._ALL_PAIRS", 1)
    assert on_all(pair, lambda c: c.barrier()) == [None] * 2
    for text in texts(on_all(pair, lambda c: c.barrier(str(c.rank)))):
        assert "process 0: collective 2, barrier(0)" in text
        assert "process 1: collective 2, barrier(1)" in text


def test_bytes_that_nobody_expects(pair):
    def call(c):
        size = 3 + c.rank
        buffer = as_bytes(np.zeros(size, np.uint8))
        other = 1 - c.rank
        got = np.zeros(3, np.uint8)
        c.channel.exchange({other: buffer}, {other: got}, Meeting(1, "by hand"))

    first = on_all(pair, call)[0]
    assert "4 bytes of kind b'D' came where 3 bytes" in texts([first])[0]
