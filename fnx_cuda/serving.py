"""Runs routines of libraries, or what does the same without them.

Receives a `Served` and a device; gives an action. A library that is missing costs
nothing but its speed; one that fails is told of once, and is not asked again for that
routine. Next on the walk: `cufft.py`, `cusolver.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from fnx_cuda import choosing, cufft, cusolver, eigen, stacks
from fnx_cuda.called import LibraryError
from fnx_cuda.cufft import Transform
from fnx_cuda.cusolver import Factoring
from fnx_cuda.device import Device
from fnx_cuda.eigen import General
from fnx_cuda.frame import Frame
from fnx_cuda.host import host_action
from fnx_cuda.instructions import Call, Launch, Served
from fnx_cuda.served import is_served
from fnx_cuda.stacks import Stack

Action = Callable[[Frame, int], None]


def served_action(
    item: Served, device: Device, launch_action: Callable[[Launch, Device], Action]
) -> Action:
    """A routine, by its library where that is there."""
    if item.own is None:
        own = host_action(item.step, device)
    else:
        own = _all([launch_action(launch, device) for launch in item.own])
    if not is_served(item):
        return own
    try:
        actions = [
            launch_action(stage, device)
            if isinstance(stage, Launch)
            else _call_action(stage, device)
            for stage in item.stages
        ]
    except LibraryError as error:
        _tell(item, error)
        return own
    made = [stage.made for stage in item.stages if isinstance(stage, Call)]
    if item.own is not None and any(isinstance(each, Stack) for each in made):
        return _Timed(item, device, _all(actions), own)
    return _Either(item, _all(actions), own)


def _all(actions: list[Action]) -> Action:
    def act(at: Frame, stream: int) -> None:
        for one in actions:
            one(at, stream)

    return act


def _call_action(call: Call, device: Device) -> Action:
    places, made = call.places, call.made
    if isinstance(made, Transform):
        plan = cufft.Plan(made, device)
        source, out = places
        return lambda at, stream: plan(at.at(source), at.at(out), stream)
    solver = _solver(made, device)
    return lambda at, stream: solver(at.all(places), stream)


def _solver(made: Factoring | General | Stack, device: Device) -> cusolver.Start:
    match made:
        case Stack():
            return stacks.solver(made, device)
        case General():
            return eigen.Eigen(made, device)
    return cusolver.Solver(made, device)


class _Either:
    """A routine by its library, until that fails."""

    def __init__(self, item: Served, first: Action, own: Action) -> None:
        self._item, self._act, self._own = item, first, own

    def __call__(self, at: Frame, stream: int) -> None:
        try:
            self._act(at, stream)
        except LibraryError as error:
            _tell(self._item, error)
            self._act = self._own
            self._own(at, stream)


class _Timed(_Either):
    """A routine by its library or by our kernels, whichever is quicker.

    The first run takes times, if none has before, and waits for them: it must not be
    captured.
    """

    def __init__(
        self, item: Served, device: Device, first: Action, own: Action
    ) -> None:
        super().__init__(item, first, own)
        self._device = device
        self._chosen = False

    def __call__(self, at: Frame, stream: int) -> None:
        if not self._chosen:
            try:
                self._choose(at, stream)
            except LibraryError as error:
                _tell(self._item, error)
                self._act = self._own
            self._chosen = True
        super().__call__(at, stream)

    def _choose(self, at: Frame, stream: int) -> None:
        library = self._act
        if not choosing.takes_library(
            self._item,
            self._device.number,
            stream,
            lambda: library(at, stream),
            lambda: self._own(at, stream),
        ):
            self._act = self._own


def _tell(item: Served, error: LibraryError) -> None:
    instead = "the host, between copies" if item.own is None else "fnx's own kernels"
    warnings.warn(
        f"A library fails, and {item.step.primitive.name!r} takes {instead}: {error}",
        RuntimeWarning,
        stacklevel=2,
    )
