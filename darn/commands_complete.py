"""The commands `complete` and `models`."""

from pathlib import Path

import numpy as np

from darn.commands import _check_seed, _say, _use_device
from darn.errors import DarnError

HALVES = ("lower", "upper", "left", "right")


def models(args) -> None:
    from darn import ready

    found = ready.describe()
    lines = [f"{'name':14} {'data':18} {'columns':>7}  {'bound':>7}  about"]
    for m in found:
        bound = "-" if m["valid_bound"] is None else f"{m['valid_bound']:.2f}"
        lines.append(f"{m['name']:14} {m['data'] or '-':18} {m['columns'] or '-':>7}  {bound:>7}  {m['about']}")
    if not found:
        lines = [f"no ready model is here: copy results/models of the repository to {ready.folders()[-1]}"]
    _say(args, found, *lines)


def complete(args) -> None:
    from darn.report import PICTURES, check_output

    check_output(args.out, PICTURES)
    for name in ("n", "samples", "every"):
        if getattr(args, name) < 1:
            raise DarnError(f"-{'-' * (name != 'n')}{name} must be at least 1, not {getattr(args, name)}")
    _check_seed(args)
    if args.hide is None and args.data is None:
        raise DarnError("nothing is missing: name a file with holes, or hide a part of the test rows with --hide lower")
    _use_device(args)
    from darn import completion
    from darn.runs import open_run, scored_rows

    run = open_run(args.model)
    options = {"seed": args.seed, "n_samples": args.samples, "sweeps": args.sweeps}
    facts: dict = {"model": str(args.model), "data": args.data or run.recipe.data, "n": args.n}
    if args.hide is None:
        x, mask, context = _with_holes(run, args.data, args.every)
    else:
        x, context = scored_rows(run.rows(args.data, args.split).take(slice(None, None, args.every)))
        mask = np.broadcast_to(_hidden(run, args.hide), x.shape)
    found = completion.complete(run.model, x, mask, n=args.n, context=context, **options)
    facts |= {"rows": len(x), "method": found.method, "missing": float(mask.mean())}
    facts["ess"] = None if found.ess is None else {"mean": float(found.ess.mean()), "min": float(found.ess.min())}
    lines = [f"{args.n} completions of {len(x):,} rows, {mask.mean():.0%} of them missing ({found.method})"]
    if found.ess is not None:
        lines[0] += f"; effective sample size {found.ess.mean():.1f} of {args.samples} (least {found.ess.min():.1f})"
    if args.hide is not None:
        scored = {"this model": completion.conditional(run.model, x, mask, context=context, **options)}
        if args.baselines and context is None:
            from darn.baselines import best_mixture

            splits = run.splits()
            k, mixture = best_mixture(splits.train.unpack(), splits.valid.unpack())
            scored[f"mixture of {k} Bernoullis"] = completion.conditional(mixture, x, mask, **options)
        facts["log_p_missing"] = {}
        for name, s in scored.items():
            half = 1.96 * float(np.std(s.log_p)) / len(x) ** 0.5
            facts["log_p_missing"][name] = {"mean": float(s.log_p.mean()), "rows_ci95": half, "method": s.method}
            mean = f"{s.log_p.mean():9.3f} nats ± {half:.2f}"
            lines.append(f"  log p(missing | seen) {mean} over rows ({s.method}): {name}")
    if args.out:
        _write(run, args.out, found.x, context, args.seed)
        facts["out"] = args.out
        lines.append(f"in {args.out}")
    _say(args, facts, *lines)


def _hidden(run, what: str) -> np.ndarray:
    """The units to hide: half of an image, or columns by name."""
    if what in HALVES:
        from darn.report import square_shape

        rows, columns = run.shape or square_shape(run.model.n_x)
        mask = np.zeros((rows, columns), bool)
        cut = {"lower": np.s_[rows // 2 :], "upper": np.s_[: rows // 2]}
        cut |= {"left": np.s_[:, : columns // 2], "right": np.s_[:, columns // 2 :]}
        mask[cut[what]] = True
        return mask.ravel()
    wanted = [w.strip() for w in what.split(",") if w.strip()]
    mask = np.zeros(run.model.n_x, bool)
    owner = np.repeat(run.schema.names, run.schema.groups) if run.schema else np.array(run.columns or [], dtype=str)
    for name in wanted:
        if name not in owner:
            raise DarnError(f"--hide takes {', '.join(HALVES)} or names of columns; there is no column {name!r}")
        mask |= owner == name
    return mask


def _with_holes(run, path: str, every: int):
    """(rows, mask, context) of a file in which values are missing: empty cells of a table, NaN of an array."""
    if run.model.n_context:
        raise DarnError("this model needs a label for every row: complete its rows from Python")
    if path.lower().endswith(".npy"):
        try:
            x = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as e:
            raise DarnError(f"{path} is not a readable NumPy file: {e}") from None
        if x.ndim != 2 or x.dtype.kind not in "fbiu":
            raise DarnError(f"{path} must hold rows by columns of 0, 1 and NaN")
        x = x[::every]
        return x, np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool), None
    names, cells = _cells(path)
    cells = cells[::every]
    gone = np.isin(np.char.lower(np.char.strip(cells)), ("", "?", "na", "n/a", "nan", "null", "none"))
    schema = run.schema
    if schema is None:
        if cells.shape[1] != run.model.n_x:
            raise DarnError(f"{path} has {cells.shape[1]} columns, the model {run.model.n_x}: give rows like its own")
        try:
            return np.where(gone, "0", cells).astype(np.float32), gone, None
        except ValueError:
            raise DarnError(f"{path} must hold 0 and 1, and nothing where a value is missing") from None
    lost = [n for n in schema.names if n not in names]
    if lost:
        raise DarnError(f"{path} has no column {lost[0]!r}: leave its cells empty where they are unknown")
    where = [names.index(n) for n in schema.names]
    cells, gone = cells[:, where], gone[:, where]
    x, mask = [], []
    for c, words, holes in zip(schema.columns, cells.T, gone.T):
        bits = np.zeros((len(words), len(c.units)), np.float32)
        if (~holes).any():
            from darn.data import Schema

            bits[~holes] = Schema((c,)).encode([c.name], words[~holes, None], path)
        hide = np.repeat(holes[:, None], len(c.units), axis=1)
        if "" in c.values:  # a hole is to be filled with a value, not with another hole
            hide[:, -1] = False
        x.append(bits)
        mask.append(hide)
    return np.concatenate(x, axis=1), np.concatenate(mask, axis=1), None


def _cells(path: str):
    from darn.data._cells import PARQUET, _parquet, _text

    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise DarnError(f"{path} cannot be read: {e.strerror}") from None
    return (_parquet if Path(path).suffix.lower() in PARQUET else _text)(Path(path), data, path)


def _write(run, out: str, x: np.ndarray, context, seed: int) -> None:
    from darn.report import write_rows, write_table, write_words

    flat = x.reshape(-1, x.shape[-1])
    if out.lower().endswith("npy"):
        write_table(out, x, [])
    elif run.schema is not None and out.lower().endswith("csv"):
        from darn import synthetic

        side = None if context is None else np.repeat(context, x.shape[1], axis=0)
        write_words(out, *synthetic.table(run, flat, side, seed=seed))
    else:
        write_rows(out, flat, shape=run.shape, columns=run.columns)
