"""The commands `report` and `compare`: what a run learned, as one HTML file."""

from darn.cli._base import Commands, add_precision, at_least_one, precision_of, say, use_device


def _options(args) -> dict:
    at_least_one(args, "rows")
    precision = precision_of(args)
    from darn.data import PAGES, check_output

    check_output(args.out, PAGES)
    use_device(args)
    return {"split": args.split, "limit": args.rows, "seed": args.seed} | precision


def report(args) -> None:
    options = _options(args)
    from tqdm import tqdm

    from darn.report import page

    with tqdm(desc="scoring", unit=" rows", disable=None) as bar:
        facts = page(args.model, args.out, target=args.target, progress=bar, **options)
    text = f"-log p {facts['nll']:.2f}, bound {facts['bound']:.2f} nats on {facts['rows']:,} {facts['split']} rows"
    say(args, facts, f"report in {facts['out']} ({text})")


def compare(args) -> None:
    options = _options(args)
    from tqdm import tqdm

    from darn.report import compare as write

    with tqdm(desc="scoring", unit=" rows", disable=None) as bar:
        facts = write(args.models, args.out or "comparison.html", progress=bar, **options)
    lines = [f"{r['nll']:10.3f} nats  bound {r['bound']:10.3f}  {r['run']}" for r in facts["runs"]]
    say(args, facts, *lines, f"comparison in {facts['out']}")


def register(add: Commands) -> None:
    def page(name, run, text, example, what, default):
        p = add.command(name, run, text, example)
        p.add_argument(*what[:1], **what[1])
        p.add_argument("--out", metavar="FILE.html", help=f"the page (default: {default})")
        p.add_argument(
            "--split", choices=("train", "valid", "test"), default="test", help="which rows to score (default test)"
        )
        p.add_argument(
            "--rows", type=int, default=1000, help="score at most this many rows, evenly spaced (default 1000)"
        )
        add_precision(p, repeats=5)
        add.computing(p)
        return p

    p = page(
        "report",
        report,
        "one HTML page on a run: curves, samples, codes, costs",
        "  darn report runs/digits\n  darn report runs/mnist-500 --rows 10000 --samples 1000 --out mnist.html",
        ("model", {"metavar": "RUN", "help": "a run folder, a model file or a pretrained model's name"}),
        "report.html in the run folder",
    )
    p.add_argument(
        "--target", metavar="COLUMN", help="of a table: predict it, learned from synthetic and from real rows"
    )

    page(
        "compare",
        compare,
        "one HTML page on several runs side by side",
        "  darn compare runs/m16 runs/m32 runs/m64 --out sizes.html",
        ("models", {"metavar": "RUN", "nargs": "+", "help": "run folders or model files"}),
        "comparison.html",
    )
