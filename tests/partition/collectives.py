"""Which collectives the devices of a program in parts meet in."""

from __future__ import annotations


def collectives(function, *args):
    """The names of the collectives in the program of one device."""
    found = []
    entries = list(function._entries.values())
    for eqn in entries[-1].spread.program.eqns:
        if "axis_name" in eqn.params:
            found.append(eqn.primitive.name)
    return sorted(name for name in found if name != "axis_index")
