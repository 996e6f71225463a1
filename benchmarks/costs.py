"""Sampling costs, counted and timed: `python -m benchmarks.costs` is `darn reproduce costs --run`."""

import sys

from darn.cli import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", "costs", "--run", *sys.argv[1:]]))
