"""`python -m benchmarks NAME… [--quick] [--json FILE] [--markdown FILE] [--plot FILE]`.

Receives names of files in this folder (none: all of them), measures their cases, prints
a table each and the question's remarks on it. Caches of compiled code on disk are off;
only the processes of `process.py` have some. Exits with 1 if an output was wrong. Next
on the walk: `harness.py`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import time
from pathlib import Path

import benchmarks
from benchmarks import harness

QUESTIONS = sorted(
    module.name
    for module in pkgutil.iter_modules(benchmarks.__path__)
    if module.name not in ("__main__", "harness")
)


def main() -> int:
    """Run the benchmarks that the command line names; 1 if an output was wrong."""
    options = _options()
    os.environ |= harness.NO_DISK_CACHE
    tables, remarks = {}, {}
    for name in options.names or QUESTIONS:
        question = importlib.import_module(f"benchmarks.{name}")
        title = f"{name}: {(question.__doc__ or '').splitlines()[0]}"
        effort = harness.QUICK if options.quick else harness.FULL
        rows = []
        for case in question.cases(options.quick):
            rows.append(harness.measure(case, effort, options.seed, options.columns))
        tables[name] = rows
        remarks[name] = question.remarks(rows) if hasattr(question, "remarks") else []
        print("\n".join([harness.table(title, rows), *remarks[name]]), flush=True)
    print(
        f"\nfnx / best peer: time over time, below 1 fnx is faster; seed {options.seed}"
    )
    if options.json:
        content = harness.report(tables, remarks, options.seed, options.quick)
        harness.write_json(options.json, content)
    if options.markdown:
        Path(options.markdown).write_text(harness.markdown(tables), encoding="utf-8")
    if options.plot:
        harness.plot(options.plot, tables)
    return int(any(row.errors for rows in tables.values() for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(QUESTIONS))
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats")
    parser.add_argument("--json", metavar="FILE", help="write all samples here")
    parser.add_argument("--markdown", metavar="FILE", help="write the table here")
    parser.add_argument("--plot", metavar="FILE", help="draw the ratios (matplotlib)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument(
        "--columns",
        nargs="+",
        choices=harness.COLUMNS,
        default=list(harness.COLUMNS),
        help="the libraries to run (default: all that are installed)",
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(QUESTIONS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; see --help")
    return options


if __name__ == "__main__":
    sys.exit(main())
