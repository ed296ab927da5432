"""The time of a pipeline's schedule, event by event.

Receives the seconds of a micro-batch on a stage, gives the step's, the share of it that
is idle, and how many micro-batches a stage holds. Next on the walk: `fnx/demo`.
"""

from __future__ import annotations

from fnx import errors
from fnx.records import record

SCHEDULES = ("gpipe", "1f1b")


@record
class PipelineTime:
    """A step of a pipeline.

    `bubble` is the share of the devices' time that is idle; `held` the most
    micro-batches whose inputs one stage holds.
    """

    seconds: float
    bubble: float
    held: int


def simulate_pipeline(
    stages: int,
    micro_batches: int,
    forward: float,
    backward: float,
    send: float = 0.0,
    schedule: str = "1f1b",
) -> PipelineTime:
    """The time of one step of training on a pipeline of equal stages.

    `forward` and `backward` are the seconds of one micro-batch on one stage, `send`
    those of a message from stage to stage, which is sent while the stage goes on.
    `schedule` is "gpipe" (all forward, then all back) or "1f1b" (back as soon as
    possible). Raises `ArgumentError` for other schedules and for numbers below 1.

    >>> time = simulate_pipeline(4, 12, forward=1.0, backward=2.0)
    >>> time.seconds, round(time.bubble, 3), time.held
    (45.0, 0.2, 4)
    """
    if schedule not in SCHEDULES:
        raise errors.ArgumentError(
            f"simulate_pipeline: schedule={schedule!r} is none of {SCHEDULES}"
        )
    if stages < 1 or micro_batches < 1:
        raise errors.ArgumentError(
            f"simulate_pipeline: {stages} stages and {micro_batches} micro-batches; "
            "there must be 1 of each at least"
        )
    orders = [_order(p, stages, micro_batches, schedule) for p in range(stages)]
    ended = _run(orders, stages, (forward, backward), send)
    seconds = max(ended.values())
    busy = micro_batches * (forward + backward)
    return PipelineTime(seconds, 1 - busy / seconds, max(map(_most_held, orders)))


Task = tuple[str, int]  # "F" or "B", and the micro-batch


def _order(stage: int, stages: int, count: int, schedule: str) -> list[Task]:
    """What a stage does, in order."""
    ahead = count if schedule == "gpipe" else min(count, stages - stage)
    found: list[Task] = [("F", i) for i in range(ahead)]
    for i in range(count):
        found.append(("B", i))
        if i + ahead < count:
            found.append(("F", i + ahead))
    return found


def _most_held(order: list[Task]) -> int:
    held = most = 0
    for kind, _ in order:
        held += 1 if kind == "F" else -1
        most = max(most, held)
    return most


def _run(
    orders: list[list[Task]], stages: int, lengths: tuple[float, float], send: float
) -> dict[tuple[int, Task], float]:
    """When each task of each stage ends."""
    ended: dict[tuple[int, Task], float] = {}
    free = [0.0] * stages
    at = [0] * stages
    waiting = list(range(stages))
    while waiting:
        stage = waiting.pop()
        while at[stage] < len(orders[stage]):
            kind, i = task = orders[stage][at[stage]]
            last = kind == "B" and stage == stages - 1
            source = stage + (-1 if kind == "F" else 1)
            before = (stage, ("F", i)) if last else (source, task)
            ready = 0.0
            if kind == "B" or stage > 0:
                if before not in ended:
                    break
                ready = ended[before] + (0.0 if last else send)
            begin = max(free[stage], ready)
            free[stage] = begin + lengths[kind == "B"]
            ended[stage, task] = free[stage]
            at[stage] += 1
            # whoever waits for this one looks again
            following = stage + (1 if kind == "F" else -1)
            if 0 <= following < stages and following not in waiting:
                waiting.append(following)
    return ended
