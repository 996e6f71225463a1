"""The claims of the paper's results section, each with our figures and whether it holds for us."""

from collections.abc import Callable
from dataclasses import dataclass

from darn.paper.rows import NOT_AT_HAND, PAPER, UCI
from darn.paper.tables import NO_DATA

UNDECIDED = "undecided"
_BASELINES = ("mob-", "rbm-", "fvsbn-", "nade-", "eonade-")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, our verdict ("holds", "does not hold" or "undecided") and the figures behind it."""

    text: str
    verdict: str
    figures: str


# (whether it holds, figures); None: undecided
Check = Callable[[dict[str, dict]], tuple[bool | None, str]]


def _values(found, *names: str, key: str = "nll") -> list[float] | None:
    values = [found[n].get(key) for n in names if n in found]
    return None if len(values) < len(names) or None in values else values  # type: ignore[return-value]


def _less(a: str, b: str, key_a: str = "nll", key_b: str = "nll", factor: float = 1.0) -> Check:
    def check(found):
        left, right = _values(found, a, key=key_a), _values(found, b, key=key_b)
        if left is None or right is None:
            return None, f"needs {', '.join(n for n in (a, b) if n not in found)}"
        name = {"nll": "-log p", "bound": "bound"}
        said = f"{a} {name[key_a]} {left[0]:.2f}, {b} {name[key_b]} {right[0]:.2f}"
        return left[0] <= factor * right[0], said

    return check


def _four_sets(found):
    wins, losses, ours, unknown = [], [], [], []
    for s in UCI:
        rivals = _values(found, *(p + s for p in _BASELINES))
        own = _values(found, s)
        if own is None or rivals is None:
            unknown.append(f"{s} ({NO_DATA})" if s in NOT_AT_HAND else s)
            continue
        (wins if own[0] < min(rivals) else losses).append(s)
        better = _values(found, f"{s}-ours")
        if s in losses and better is not None and better[0] < min(rivals):
            ours.append(s)
    parts = (("best on", wins), ("not on", losses), ("on these with our stacks", ours), ("incomplete", unknown))
    said = "; ".join(f"{k}: {', '.join(v)}" for k, v in parts if v)
    if len(wins) >= 4:
        return True, said
    return (None if len(wins) + len(unknown) >= 4 else False), said


def _depth(found):
    others = {r.name for r in PAPER if r.table == "table2" and r.bound is not None and r.name != "mnist-deep"}
    bounds = {n: found[n]["bound"] for n in others if found.get(n, {}).get("bound") is not None}
    if "mnist-deep" not in found or not bounds:
        return None, "needs mnist-deep"
    best = min(bounds, key=lambda n: bounds[n])
    return found["mnist-deep"]["bound"] <= bounds[best], (
        f"mnist-deep bound {found['mnist-deep']['bound']:.2f}, best other ({best}) {bounds[best]:.2f}"
    )


def _sampling(found):
    counted = found.get("costs", {}).get("trained", {})
    if not {"mnist-fdarn", "nade-mnist"} <= set(counted):
        return None, "needs counts of mnist-fdarn and nade-mnist"
    fast, nade = counted["mnist-fdarn"]["operations"], counted["nade-mnist"]["operations"]
    return nade / fast >= 50, f"fDARN {fast:,.0f}, NADE {nade:,.0f} weight operations a sample: {nade / fast:.0f} fold"


def _low_variance(found):
    names = [n for n in ("mnist-500", "mnist-500-noise") if n in found and found[n]["method"] == "importance"]
    if not names:
        return None, "needs mnist-500"
    said = ", ".join(
        f"{n} ± {found[n]['nll_ci95']:.4f} ({found[n]['n_samples']:,} x {found[n]['repeats']})" for n in names
    )
    return all(found[n]["nll_ci95"] <= 0.01 for n in names), said


def _no_early_stopping(found):
    names = [n for n in ("mnist-9", "mnist-10", "mnist-16", "mnist-500-noise") if n in found]
    notes = {n: found[n].get("training", {}) for n in names}
    rise = {n: m["last_valid_bound"] - m["valid_bound"] for n, m in notes.items() if "last_valid_bound" in m}
    alone = [
        n for n in rise if not found[n]["recipe"]["training"]["weight_decay"]
    ]  # where noise is all that holds the weights
    if not alone:
        return None, "needs mnist-9"
    said = ", ".join(f"{n} {r:.2f}{'' if n in alone else ' (with weight decay besides)'}" for n, r in rise.items())
    return all(rise[n] < 0.1 for n in alone), f"from its best to the end the validation bound rises by: {said}"


def _noise_on_small_sets(found):
    done = {s: (found[s]["nll"], found[f"{s}-noise"]["nll"]) for s in UCI if s in found and f"{s}-noise" in found}
    if not done:
        return None, "needs a small set with and without noise"
    said = ", ".join(f"{s} {a:.2f} without, {b:.2f} with" for s, (a, b) in done.items())
    return all(a <= b for a, b in done.values()), said


def _straight_through(found):
    check = _less("mnist-500", "mnist-500-straight_through", "bound", "bound")
    holds, said = check(found)
    other = found.get("mnist-500-straight_through")
    unbiased = [f"mnist-500-{e}" for e in ("reinforce", "disarm") if f"mnist-500-{e}" in found]
    said = ", ".join([said, *(f"{n} bound {found[n]['bound']:.2f}" for n in unbiased)])
    # It works if it learns at all: far below the 206.7 nats of independent pixels.
    return (None if holds is None else holds and other is not None and other["bound"] < 120), said


_CLAIMS: list[tuple[str, Check]] = [
    ("DARN's bound (n_h = 500) is below NADE's likelihood", _less("mnist-500", "nade-mnist", key_a="bound")),
    ("DARN with 500 units is below the best EoNADE", _less("mnist-500", "eonade2-mnist")),
    ("better than all baselines on four of the eight UCI sets", _four_sets),
    ("depth gives the best bound", _depth),
    ("fDARN samples nearly a hundred times faster than NADE", _sampling),
    ("the importance estimate has low variance", _low_variance),
    ("9 stochastic units almost match a mixture of 500 Bernoullis", _less("mnist-9", "mob500-mnist", factor=1.01)),
    ("adaptive weight noise removes the need for early stopping on MNIST", _no_early_stopping),
    ("weight noise does not help on the small UCI sets", _noise_on_small_sets),
    ("naive straight-through works, but is biased: the estimator of the appendix is better", _straight_through),
]


def claims(found: dict[str, dict]) -> list[Claim]:
    """Every claim, judged by the rows that are there."""
    out = []
    for text, check in _CLAIMS:
        holds, figures = check(found)
        out.append(Claim(text, UNDECIDED if holds is None else "holds" if holds else "does not hold", figures))
    return out
