"""The command line of `fnx.testing`: `--rules` prints the op × rule table.

Receives options, prints text; the exit status is 1 where a rule is missing.
"""

from __future__ import annotations

import argparse
import sys

from fnx.testing.rules import rule_gaps, rule_table


def main() -> int:
    """Prints what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m fnx.testing")
    parser.add_argument(
        "--rules", action="store_true", help="print which primitive has which rule"
    )
    options = parser.parse_args()
    if not options.rules:
        parser.print_help()
        return 2
    print(rule_table())
    return 1 if rule_gaps() else 0


if __name__ == "__main__":
    sys.exit(main())
