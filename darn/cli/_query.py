"""The command `query`."""

from darn.cli._base import Commands, add_given, check_seed, say, use_device
from darn.errors import DarnError

MOST = 30  # values of a distribution that are printed


def query(args) -> None:
    check_seed(args)
    if args.samples < 2:
        raise DarnError(f"--samples must be at least 2, not {args.samples}")
    use_device(args)
    from darn.runs import questions
    from darn.runs.classes import label_contexts, one_context
    from darn.runs.run import load

    run = load(args.model)
    schema = questions.schema_of(run)
    context = one_context(run, label_contexts(run, args.label), args.label)
    options = {"given": args.given, "context": context, "draws": args.samples, "seed": args.seed}
    answers = [questions.ask(run.model, schema, q, **options) for q in args.questions]
    facts = [_facts(a) for a in answers]
    say(args, facts[0] if len(facts) == 1 else facts, *(line for a in answers for line in _lines(a)))


def _facts(a) -> dict:
    number = lambda e: e and {"value": e.value, "se": e.se, "low": e.low, "high": e.high}  # noqa: E731
    facts = {"question": a.question, "kind": a.kind, "method": a.method, "given": number(a.given)}
    facts |= {"result": number(a.result), "ess": a.ess, "draws": a.draws}
    if a.kind == "distribution":
        facts |= {"values": {name: number(e) for name, e in a.values.items()}, "quantiles": a.quantiles}
    if a.missing is not None:
        facts["missing"] = number(a.missing)
    return facts


def _lines(a):
    how = "exact"
    if a.ess is not None:
        how = f"estimated, effective sample size {a.ess:,.0f} of {a.draws:,}"
    likely = f"{a.given.value:.3g}"
    how += f"; the conditions have probability {likely}" if likely != "1" else ""  # such as those there are none of
    if a.kind != "distribution":
        yield f"{a.question} = {a.result}  ({how})" if a.result else f"{a.question}: always missing  ({how})"
    else:
        yield f"{a.question}  ({how})"
        shown = list(a.values.items())
        if not a.quantiles:
            shown.sort(key=lambda item: -item[1].value)
        width = max(len(name) for name, _ in shown)
        for name, e in shown[:MOST]:
            yield f"  {name:{width}}  {e}"
        if len(shown) > MOST:
            yield f"  and {len(shown) - MOST} more, in all {sum(e.value for _, e in shown[MOST:]):.4g}"
    if a.missing is not None:
        yield f"  missing: {a.missing}"
    if a.kind == "distribution" and a.result is not None:
        yield f"  mean: {a.result}"
    if a.quantiles:
        yield "  quantiles: " + ", ".join(f"{level:.0%} {text}" for level, text in a.quantiles.items())
    if a.doubtful:
        yield "  the effective sample size is small: do not trust the interval; more --samples help"


def register(add: Commands) -> None:
    p = add.command(
        "query",
        query,
        "probabilities, means and distributions of a table's columns, given conditions",
        "  darn query runs/adult 'P(income=>50K | sex=Female, age>=40)'\n"
        "  darn query runs/adult 'E(age | income=>50K)' 'P(education | age in 30..40)'",
    )
    p.add_argument("model", metavar="RUN", help="a run folder, a model file or a pretrained model's name")
    p.add_argument(
        "questions",
        nargs="+",
        metavar="QUESTION",
        help="P(event | conditions), P(column | conditions) or E(column | conditions)",
    )
    add_given(p)
    p.add_argument("--label", help="the class, for a model that was trained with --labels")
    p.add_argument("--samples", type=int, default=20_000, help="draws for an estimate (default 20,000)")
    p.add_argument("--seed", type=int, default=0, help="the same seed, the same estimates")
    add.computing(p)
