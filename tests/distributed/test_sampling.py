"""fnx/distributed/sampling.py: parts, orders that do not depend on the processes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fnx.distributed import Sampler, shard_of
from fnx.distributed.sampling import part, permuted
from fnx.errors import ArgumentError
from fnx.runtime.processes import Processes, enter


@pytest.fixture
def process():
    """Makes this process one of several, as far as it can tell."""
    yield lambda index, count: enter(Processes(index, count))
    enter(None)


@pytest.mark.parametrize("n", [0, 1, 7, 64, 10**12 + 1])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_parts_are_all_and_nearly_equal(n, count):
    parts = [part(n, index, count) for index in range(count)]
    assert parts[0].start == 0 and parts[-1].stop == n
    assert all(a.stop == b.start for a, b in pairwise(parts))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_process_has_its_own(process):
    process(2, 3)
    assert shard_of(10) == range(6, 10)
    with pytest.raises(ArgumentError, match="no so many"):
        shard_of(-1)


@pytest.mark.parametrize("size", [1, 2, 3, 10, 255, 256, 257, 5000])
def test_an_epoch_has_each_example_once(size):
    orders = [permuted(np.arange(size), size, 3, epoch) for epoch in range(3)]
    for order in orders:
        assert order.dtype == np.int64 and sorted(order) == [*range(size)]
    if size > 9:
        assert len({tuple(order) for order in orders}) == 3
        assert (permuted(np.arange(size), size, 4, 0) != orders[0]).any()


def test_the_order_is_always_the_same():
    assert permuted(np.arange(6), 6, 0, 0).tolist() == [1, 5, 4, 2, 3, 0]
    far = permuted(np.array([0, 10**15]), 10**15 + 1, -7, 2**40)
    assert far.tolist() == [893569586555979, 13070546595663]


@pytest.mark.parametrize("size", [5, 40])
def test_every_example_is_as_likely_at_every_place(size):
    counts = np.zeros((size, size))
    epochs = 400
    for epoch in range(epochs):
        counts[np.arange(size), permuted(np.arange(size), size, 0, epoch)] += 1
    mean = epochs / size
    statistic = ((counts - mean) ** 2 / mean).sum()  # chi-square: (size - 1)² degrees
    degrees = (size - 1) ** 2
    assert abs(statistic - degrees) < 5 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_are_the_same_with_any_number_of_processes(process, shuffle):
    sampler = Sampler(size=53, batch_size=12, seed=9, shuffle=shuffle)
    alone = [sampler.batch(step) for step in range(2 * sampler.steps)]
    assert sampler.steps == 4
    for count in (2, 3, 4):
        together = []
        for index in range(count):
            process(index, count)
            together.append([sampler.batch(step) for step in range(8)])
        for step in range(8):
            joined = np.concatenate([own[step] for own in together])
            assert joined.tolist() == alone[step].tolist()
    epochs = np.array(alone).reshape(2, -1)
    assert all(len({*epoch}) == 48 for epoch in epochs.tolist())
    assert (epochs[0] != epochs[1]).any() == shuffle
    if not shuffle:
        assert epochs[0].tolist() == [*range(48)]


@pytest.mark.parametrize(
    ("size", "batch", "count", "step"),
    [(10, 0, 1, 0), (10, 11, 1, 0), (10, 4, 3, 0), (10, 5, 1, -1)],
)
def test_batches_that_cannot_be(process, size, batch, count, step):
    process(0, count)
    with pytest.raises(ArgumentError, match=f"batch {step} for {count} processes"):
        Sampler(size, batch).batch(step)
