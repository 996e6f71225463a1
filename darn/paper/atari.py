"""Section 5.3 as rows: five games on two splits, a local FVSBN beside each, Freeway networks of three depths."""

from darn.config import Window
from darn.paper.recipes_atari import ATARI_BOUNDS
from darn.paper.rows import Row

# The paper's bound is a single estimate; 20 samples per frame show how far -log p is below it.
_COMMON = {"scoring": (20, 1), "keep_model": False}
_FVSBN = (("n_h", ()), ("local", ()))
_FRONTIER = {"scoring": (2, 1), "keep_model": False}  # a frame takes a thousand times the work
PERIODS = (1, 8, 14)  # of Pong: plain convolutions and two periods, the same in all maps


def _rows():
    for game, bound in ATARI_BOUNDS.items():
        base, data = f"atari/{game}", f"atari/{game}"
        episodes = f"{data}/episodes"
        common = {"base": base, **_COMMON}
        yield Row("atari", game, "DARN", data, bound=bound, baselines=True, decimals=1, **common)
        yield Row("atari", f"{game}-episodes", "DARN, by episode", episodes, baselines=True, **common)
        yield Row("atari", f"{game}-fvsbn", "local FVSBN", data, fields=_FVSBN, **common)
        yield Row("atari", f"{game}-fvsbn-episodes", "local FVSBN, by episode", episodes, fields=_FVSBN, **common)
        ours = {"base": f"{base}-frontier", **_FRONTIER}
        plain = {"fields": (("n_h", ()), ("n_d", ()), ("local", ()), ("warmup_steps", 0)), **ours}
        for split, of, name in ((data, "", ""), (episodes, ", by episode", "-episodes")):
            yield Row("atari", f"{game}-frontier{name}", f"causal convolutions over a code{of}", split, **ours)
            yield Row("atari", f"{game}-frontier-plain{name}", f"causal convolutions{of}", split, **plain)
    for p in PERIODS:
        fields = (("period", p), ("ar", Window(15, p)))
        yield Row(
            "atari", f"pong-period-{p}", f"DARN, period {p}", "atari/pong", base="atari/pong", fields=fields, **_COMMON
        )
    for depth in (1, 2, 3):
        method = f"DARN, {depth} stochastic layer{'s' if depth > 1 else ''}"
        yield Row("atari", f"freeway-{depth}", method, "atari/freeway", base=f"atari/freeway-{depth}", **_COMMON)


ROWS: tuple[Row, ...] = tuple(_rows())
# Columns of the table that appear with their first figure.
_LATER = {"convolutions": "-frontier", "convolutions, by episode": "-frontier-episodes"}


def table(found: dict[str, dict]) -> list[list[str]]:
    """Header and body: nats per test frame of each of the paper's games."""

    def figure(game: str, column: str) -> float | None:
        return found.get(game + _LATER[column], {}).get("bound")

    later = [k for k in _LATER if any(figure(game, k) is not None for game in ATARI_BOUNDS)]

    def figures(game: str) -> dict[str, float | None]:
        ours, baselines = found.get(game, {}), found.get(game, {}).get("baselines", {})
        return {
            "paper": ATARI_BOUNDS[game],
            "darn": ours.get("bound"),
            "by episode": found.get(f"{game}-episodes", {}).get("bound"),
            "local FVSBN": found.get(f"{game}-fvsbn", {}).get("bound"),
            "independent pixels": baselines.get("independent"),
            "xz -9e": baselines.get("xz -9e"),
        }

    rows = {game: figures(game) | {k: figure(game, k) for k in later} for game in ATARI_BOUNDS}
    header = ["game", *rows[next(iter(rows))]]
    return [header, *([g, *("not yet run" if v is None else f"{v:,.1f}" for v in r.values())] for g, r in rows.items())]
