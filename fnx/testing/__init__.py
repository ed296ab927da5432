"""Layer 10: what users test with: `check`, `check_grads`, and the table of rules.

`python -m fnx.testing --rules` prints which primitive has which rule.
The end of this walk; the tests of fnx itself are in the folder `tests`.
"""

from fnx.testing.compare import check
from fnx.testing.gradients import check_grads
from fnx.testing.rules import rule_gaps, rule_table

__all__ = ["check", "check_grads", "rule_gaps", "rule_table"]
