"""The commands `report` and `compare`: what a run learned, as one HTML file."""

from darn.commands import _check_seed, _say, _use_device
from darn.errors import DarnError


def _options(args) -> dict:
    for name in ("rows", "samples", "repeats"):
        if getattr(args, name) < 1:
            raise DarnError(f"--{name} must be at least 1, not {getattr(args, name)}")
    _check_seed(args)
    from darn.report import PAGES, check_output

    check_output(args.out, PAGES)
    _use_device(args)
    found = {"split": args.split, "limit": args.rows, "n_samples": args.samples, "repeats": args.repeats}
    return found | {"seed": args.seed}


def report(args) -> None:
    options = _options(args)
    from tqdm import tqdm

    from darn.report import page

    with tqdm(desc="scoring", unit=" rows", disable=None) as bar:
        facts = page(args.model, args.out, progress=bar, **options)
    text = f"-log p {facts['nll']:.2f}, bound {facts['bound']:.2f} nats on {facts['rows']:,} {facts['split']} rows"
    _say(args, facts, f"report in {facts['out']} ({text})")


def compare(args) -> None:
    options = _options(args)
    from tqdm import tqdm

    from darn.report import compare as write

    with tqdm(desc="scoring", unit=" rows", disable=None) as bar:
        facts = write(args.models, args.out or "comparison.html", progress=bar, **options)
    lines = [f"{r['nll']:10.3f} nats  bound {r['bound']:10.3f}  {r['run']}" for r in facts["runs"]]
    _say(args, facts, *lines, f"comparison in {facts['out']}")
