"""The command line of `fnx.testing`: tables of rules and of names.

`--rules` prints which primitive has which rule, `--api FILE` which names of a JSON file
there are. Receives options, prints text; the exit status is 1 where a rule is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fnx.testing.coverage import coverage_table
from fnx.testing.rules import rule_gaps, rule_table


def main() -> int:
    """Prints what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m fnx.testing")
    parser.add_argument(
        "--rules", action="store_true", help="print which primitive has which rule"
    )
    parser.add_argument(
        "--api",
        type=Path,
        metavar="FILE",
        help="print which names there are of a JSON file, {module: {name: parameters}}",
    )
    options = parser.parse_args()
    if options.api:
        print(coverage_table(json.loads(options.api.read_text(encoding="utf-8"))))
        return 0
    if not options.rules:
        parser.print_help()
        return 2
    print(rule_table())
    return 1 if rule_gaps() else 0


if __name__ == "__main__":
    sys.exit(main())
