"""RBMs on MNIST, trained longer than the one of table 2 and chosen by validation: `python -m experiments.rbm`."""

import argparse
import itertools
from dataclasses import replace

from darn.data import load
from darn.paper.rbm import Settings, fit


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--rows", type=int, default=0, help="so many training rows only, for a trial")
    args = parser.parse_args(argv)
    splits = load("binarized_mnist")
    train = splits.train.subsample(args.rows or len(splits.train)).unpack()
    for lr, decay in itertools.product((0.02, 0.05, 0.1), (1e-5, 1e-4)):
        settings = replace(Settings(), lr=lr, weight_decay=decay, epochs=args.epochs, looks=min(8, args.epochs))
        _, found = fit(train, splits.valid.unpack(), settings)
        print(f"lr {lr}, weight decay {decay}: validation {found['valid_nll']:.3f} nats at epoch {found['epoch']}")


if __name__ == "__main__":
    main()
