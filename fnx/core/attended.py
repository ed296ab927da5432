"""What an attention is besides its arrays: numbers that backends know it by.

An equation that stands for the program of an attention says it by its primitive's rule
`attends`, so that a backend with a routine for it need not know the program. Next on
the walk: `primitive.py`.
"""

from __future__ import annotations

from fnx.records import record


@record
class Attended:
    """Which keys a query sees, and the factor of their products.

    The query at position t sees the keys from t - `left` to t + `right`; `None` is no
    bound. With `logsumexp`, that of each query's products is an output, too.
    """

    scale: float
    left: int | None = None
    right: int | None = None
    logsumexp: bool = False

    @property
    def shown(self) -> str:
        """Which keys a query at t sees, for people.

        >>> Attended(1.0, left=3, right=0).shown
        't - 3 … t'
        """
        if self.left is None and self.right is None:
            return "all keys"
        start = "" if self.left is None else f"t - {self.left} "
        end = "" if self.right is None else f" t + {self.right}" if self.right else " t"
        return f"{start}…{end}"

    def sees_some(self, queries: int, keys: int) -> bool:
        """Whether each of so many queries sees at least one of so many keys.

        >>> Attended(1.0, left=2).sees_some(8, 6), Attended(1.0, left=2).sees_some(9, 6)
        (True, False)
        """
        return keys > 0 and (self.left is None or queries - self.left <= keys)


GRADIENTS, FORWARD = "gradients", "forward"
"""What an equation may compute of an attention."""
