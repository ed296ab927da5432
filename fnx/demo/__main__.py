"""`python -m fnx.demo digits` or `parallel`: trains, and prints what happened.

Receives options, prints a table; the exit status is 1 where something is missing, an
option has a wrong value, or a recipe differs from one device. The walk ends here.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import fnx
from fnx.demo import digits, report
from fnx.demo.parallel import checks
from fnx.demo.parallel.replicas import on_devices, on_replicas
from fnx.errors import OptionError

INSTALL = "python -m pip install scikit-learn tqdm"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo that the command line names."""
    options = _parser().parse_args(arguments)
    try:
        if options.demo == "parallel":
            return _parallel(options)
        load_digits, bar = _dependencies()
        print(_digits(options, load_digits, bar), flush=True)
    except BrokenPipeError:  # `--show llvm | head`: nobody reads the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ImportError, OptionError) as error:
        print(f"fnx.demo: {error}", file=sys.stderr)
        return 1
    return 0


def _digits(options: argparse.Namespace, load_digits: Any, bar: Any) -> str:
    data = digits.load_data(load_digits)
    if options.show:
        steps = digits.count_steps(data, options.batch, options.epochs)
        step, example = digits.prepare(data, options.seed, steps, options.batch)
        return report.stage_text(step, example, options.show)

    def progress(stream: Any, total: int) -> Any:
        return bar(stream, total=total, unit="step", disable=options.quiet)

    run = digits.train(data, options.seed, options.epochs, options.batch, progress)
    return report.table(run, len(data.test_images))


def _parallel(options: argparse.Namespace) -> int:
    run = on_devices if options.on == "devices" else on_replicas
    with fnx.config.override(cpu_devices=max(8, fnx.config.cpu_devices)):
        rows = checks.checks(run, options.steps)
        text, equal = checks.report(rows, checks.ROUNDING)
    print(text, flush=True)
    return 0 if equal else 1


def _dependencies() -> tuple[Any, Any]:
    try:
        # lazy: only the demo needs these two packages
        from sklearn.datasets import load_digits
        from tqdm import tqdm  # type: ignore[import-untyped]  # lazy: see above
    except ImportError as error:
        raise ImportError(f"{error}; the demo needs: {INSTALL}") from error
    return load_digits, tqdm


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fnx.demo", description=__doc__)
    demos = parser.add_subparsers(dest="demo", required=True)
    one = demos.add_parser("digits", help="a small network learns handwritten digits")
    one.add_argument("--seed", type=_at_least(0), default=0, help="default 0")
    one.add_argument("--epochs", type=_at_least(1), default=30, help="default 30")
    one.add_argument("--batch", type=_at_least(1), default=64, help="default 64")
    one.add_argument("--quiet", action="store_true", help="no progress bar")
    one.add_argument(
        "--show", choices=report.STAGES, help="print the training step, do not train"
    )
    many = demos.add_parser(
        "parallel", help="recipes for many devices learn the same as one device"
    )
    many.add_argument("--steps", type=_at_least(1), default=10, help="default 10")
    many.add_argument(
        "--on",
        choices=["devices", "one"],
        default="devices",
        help="eight devices, or one that has all replicas, by vmap; default devices",
    )
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no integer") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more, got {number}")
        return number

    return parse


if __name__ == "__main__":
    sys.exit(main())
