"""The command `evaluate-synthetic`."""

from darn.cli._base import Commands, add_delimiter, at_least_one, check_seed, say

SHOWN = 10  # pairs of columns with the largest differences


def evaluate_synthetic(args) -> None:
    at_least_one(args, "rows")
    check_seed(args)
    from darn import fidelity
    from darn.data import PAGES, check_output, read_table

    check_output(args.out, PAGES, args.real, args.synthetic, args.held_out)
    named = {"real": args.real, "synthetic": args.synthetic, "held_out": args.held_out}
    real, synthetic, held_out = (
        None if path is None else read_table(path, delimiter=args.delimiter) for path in named.values()
    )
    assert real is not None
    assert synthetic is not None
    found = fidelity.evaluate(real, synthetic, held_out=held_out, target=args.target, rows=args.rows, seed=args.seed)
    facts = {"files": {k: v for k, v in named.items() if v is not None}} | found.to_json()
    lines = list(_lines(found))
    if args.out:
        from darn.report import fidelity_page

        fidelity_page(found, args.out, real=args.real, synthetic=args.synthetic)
        facts["out"] = args.out
        lines += ["", f"page in {args.out}"]
    say(args, facts, *lines)


def _lines(found):
    rows = ", ".join(
        f"{n:,} {part.replace('_', '-')}" + (f" (of {found.total[part]:,})" if n < found.total[part] else "")
        for part, n in found.rows.items()
    )
    yield f"rows: {rows}; {len(found.marginals)} columns"
    if found.left_out:
        why = "since only some of the tables have them, or as identifiers left empty"
        yield f"left out, {why}: {', '.join(found.left_out)}"
    yield ""
    width = min(max(len("column"), *(len(m.column) for m in found.marginals)), 30)
    yield f"{'column':{width}}  kind      total variation  by chance  unseen values"
    for m in found.marginals:
        yield f"{m.column[:width]:{width}}  {m.kind:8}  {m.tv:15.3f}  {m.chance:9.3f}  {m.unseen:13.1%}"
    if found.associations:
        yield ""
        yield "largest differences in association (Cramér's V, 0 to 1)      real  synthetic  total variation"
        for a in found.associations[:SHOWN]:
            yield f"{f'{a.a}, {a.b}'[:55]:55}  {a.real:8.3f}  {a.synthetic:9.3f}  {a.tv:15.3f}"
    yield ""
    yield f"classifier two-sample AUC       {found.auc:.3f}  0.5: synthetic rows look real; 1: none does"
    yield f"total variation, a column       {found.marginal_tv:.3f}  mean"
    if found.pairwise_tv is not None:
        yield f"total variation, a pair         {found.pairwise_tv:.3f}  mean; {found.pairwise_chance:.3f} by chance"
    u = found.utility
    if u is not None:
        where = "held-out" if u.held_out else "real"
        yield (
            f"{u.score + ' of ' + u.target:31.31} {u.synthetic:.3f}  trained on synthetic rows; {u.real:.3f} on real; "
            f"{u.baseline:.3f} for a constant; {u.test_rows:,} {where} rows tested"
        )
    yield from _privacy(found.privacy)


def _privacy(p):
    other = "held-out rows" if p.held_out else "real rows to the nearest other"
    yield (
        f"distance to nearest real row    {p.synthetic.median:.3f}  median; {p.other.median:.3f} for {other}; "
        f"exact copies {p.synthetic.copies:.1%} and {p.other.copies:.1%}"
    )
    yield f"nearer than {other[:19]:19} {p.closer:.3f}  fraction of the time; 0.5: no nearer; 1: copies"
    if p.membership_auc is None:
        yield f"attribute disclosure            {p.disclosed:.3f}  of the cells of real rows guessed"
        yield "membership inference                -  needs rows that the generator has not seen: --held-out FILE"
        return
    yield f"membership inference AUC        {p.membership_auc:.3f}  0.5: real rows are not recognised; 1: all are"
    yield (
        f"attribute disclosure            {p.disclosed:.3f}  of the cells of real rows guessed; "
        f"{p.disclosed_held_out:.3f} of held-out rows; most for {p.disclosed_column} ({p.disclosed_gap:+.3f})"
    )


def register(add: Commands) -> None:
    p = add.command(
        "evaluate-synthetic",
        evaluate_synthetic,
        "how close synthetic rows of any generator are to real ones",
        "  darn evaluate-synthetic real.csv synthetic.csv\n"
        "  darn evaluate-synthetic train.parquet synthetic.csv --held-out test.csv --target income --out page.html",
    )
    p.add_argument("real", metavar="REAL", help="the rows that the generator learned from: .csv, .tsv or .parquet")
    p.add_argument("synthetic", metavar="SYNTH", help="the generator's rows, under the same column names")
    p.add_argument(
        "--held-out",
        metavar="FILE",
        help="real rows that the generator has not seen, for privacy and to test predictions",
    )
    p.add_argument("--target", metavar="COLUMN", help="a column to predict, learned from synthetic and from real rows")
    p.add_argument("--rows", type=int, default=10_000, help="use at most this many rows of each table (default 10000)")
    p.add_argument("--seed", type=int, default=0, help="of the choice of rows and the classifiers (default 0)")
    add_delimiter(p)
    p.add_argument("--out", metavar="FILE.html", help="also write a page with pictures of every column")
