"""Cases of `fnx/control/attention.py`: attention, with and without the logsumexp, and
its gradients by either program, in double precision."""

from __future__ import annotations

import functools

import fnx
from fnx import errors
from fnx.core.attended import Attended
from fnx.core.program import Program
from fnx.core.types import array_type
from fnx.nn.attending import by_formula, means_and_sums
from fnx.nn.blocked import blocked
from tests.cases import CASES, Case
from tests.cases_control import F3, add, bad, held, values

Q = array_type((2, 4, 4, 2), "float64")
KEYS = array_type((2, 3, 2, 2), "float64")
SUMS = array_type((2, 4, 4), "float64")
SAVED = (Q, KEYS, KEYS, Q, SUMS, Q)


def _programs(attended: Attended) -> dict[str, Program]:
    """Of the attention and of its gradients, and what CPUs have of both."""

    def differentiated(way):
        def gradients(*args):
            *operands, _, _, ct = args
            return fnx.vjp(lambda *xs: way(*xs, attended)[0], *operands)[1](ct)

        return gradients

    own, cpu, formula = [
        functools.partial(way, attended=attended)
        for way in (means_and_sums, blocked, by_formula)
    ]
    return {
        "program": held(own, Q, KEYS, KEYS),
        "cpu": held(cpu, Q, KEYS, KEYS),
        "differentiated": held(differentiated(means_and_sums), *SAVED),
        "formula": held(formula, *SAVED),
    }


for _name, _left, _right in (("all", None, None), ("causal", None, 0), ("band", 1, 1)):
    for _summed in (False, True):
        _attended = Attended(0.4, _left, _right, _summed)
        _made = _programs(_attended)
        _own = {name: _made[name] for name in ("program", "cpu")}
        _own |= {"gradients": _made["formula"], "attended": _attended}
        add(
            "attention",
            f"{_name}{' with sums' if _summed else ''}",
            (Q, KEYS, KEYS),
            params=_own,
            smooth=(0, 1, 2),
            linear=() if _summed else ((2,),),
        )
    for _way in ("differentiated", "formula"):
        _held = _made[_way]
        _rest = {"program": _held, "cpu": _held, "attended": _attended}
        # What cancels is small beside what it is the difference of.
        CASES.append(
            Case(
                "attention_gradients",
                f"{_name} {_way}",
                values(*SAVED),
                _rest,
                smooth=(0, 1, 2, 5) if _way == "differentiated" else tuple(range(6)),
                linear=((5,),),
                ulp=1 << 14,
            )
        )

_types = (Q, KEYS, F3)
bad("attention", "shapes", _types, errors.ShapeError, "attention: takes", **_own)
_types = (Q, KEYS, KEYS, Q, SUMS, F3)
bad("attention_gradients", "shapes", _types, errors.ShapeError, "takes", **_rest)
