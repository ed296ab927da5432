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
from tests.cases_control import F3, add, bad, held

Q = array_type((2, 3, 4, 2), "float64")
KEYS = array_type((2, 4, 2, 2), "float64")
SUMS = array_type((2, 4, 3), "float64")
SAVED = (Q, KEYS, KEYS, Q, SUMS, Q)


def _programs(attended: Attended) -> tuple[Program, Program, Program]:
    """Of the attention, and of its gradients: by that program, and the formula."""

    def differentiated(*args):
        *operands, _, _, ct = args
        pull = fnx.vjp(lambda *xs: means_and_sums(*xs, attended)[0], *operands)[1]
        return pull(ct)

    own = functools.partial(means_and_sums, attended=attended)
    formula = functools.partial(by_formula, attended=attended)
    return (
        held(own, Q, KEYS, KEYS),
        held(differentiated, *SAVED),
        held(formula, *SAVED),
    )


for _name, _left, _right in (("all", None, None), ("causal", None, 0), ("band", 1, 1)):
    for _summed in (False, True):
        _attended = Attended(0.4, _left, _right, _summed)
        _program, _differentiated, _formula = _programs(_attended)
        add(
            "attention",
            f"{_name}{' with sums' if _summed else ''}",
            (Q, KEYS, KEYS),
            params={
                "program": _program,
                "gradients": _formula,
                "attended": _attended,
            },
            smooth=(0, 1, 2),
            linear=() if _summed else ((2,),),
        )
    for _way, _held in (("differentiated", _differentiated), ("formula", _formula)):
        add(
            "attention_gradients",
            f"{_name} {_way}",
            SAVED,
            params={"program": _held, "attended": _attended},
            smooth=(0, 1, 2, 5) if _way == "differentiated" else (0, 1, 2, 3, 4, 5),
            linear=((5,),),
        )

_own = {"program": _program, "gradients": _formula, "attended": _attended}
_rest = {"program": _formula, "attended": _attended}
_types = (Q, KEYS, F3)
bad("attention", "shapes", _types, errors.ShapeError, "attention: takes", **_own)
_types = (Q, KEYS, KEYS, Q, SUMS, F3)
bad("attention_gradients", "shapes", _types, errors.ShapeError, "takes", **_rest)
