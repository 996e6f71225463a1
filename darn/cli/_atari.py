"""Section 5.3, used by `darn data` and `darn reproduce`: recording frames, and the figures."""

from functools import partial
from pathlib import Path

from darn.cli._base import at_least_one, check_seed, names_in, say, use_device
from darn.errors import DarnError


def record(args) -> None:
    if args.name not in ("atari", None):
        raise DarnError(f"--game is for `darn data atari`, not for {args.name}")
    from darn.data import GAMES

    if not args.game:
        raise DarnError(f"say which game to record with --game: {', '.join(GAMES)}, or all")
    games = list(GAMES) if args.game == ["all"] else names_in(args.game) or []
    if args.frames < 20:
        raise DarnError(f"--frames must be at least 20, not {args.frames}")
    at_least_one(args, "processes")
    check_seed(args)
    from tqdm import tqdm

    from darn.data import record_atari

    with tqdm(total=args.frames * len(games), desc="recording", unit=" frames", disable=None) as bar:
        made = record_atari(
            games,
            args.frames,
            seed=args.seed,
            processes=args.processes,
            progress=partial(_advance, bar),
        )
    facts = {"games": games, "frames": args.frames, "seed": args.seed, "files": [str(p) for p in made]}
    say(args, facts, *(f"{args.frames:,} frames of {g} in {p}" for g, p in zip(games, made)))


def _advance(bar, count: int) -> None:
    bar.update(min(count, bar.total - bar.n))  # an episode may end after the last frame that is kept


# ---------------------------------------------------------------- reproduce

TARGETS = ("atari", "fig3", "fig4", "fig5")


def reproduce(args) -> int:
    """Prints the games' figures; with --run, --rows or a figure's name first makes what is missing and draws it."""
    from darn.paper.recipes_atari import ATARI_BOUNDS

    if args.what == "atari" and not (args.run_rows or args.rows or args.tiny or args.again):
        return _show(args)
    games = args.rows or list(ATARI_BOUNDS)
    for game in games:
        if game not in ATARI_BOUNDS:
            raise DarnError(f"the paper has no game {game!r}: it has {', '.join(ATARI_BOUNDS)}")
    use_device(args)
    from darn.paper import atari

    book = atari.Book(Path(args.runs), Path(args.results) / "atari", args.tiny, args.again, not args.quiet)
    if args.what in ("atari", "fig3"):
        found = {game: book.game(game) if args.what == "atari" else book.figure3(game) for game in games}
    else:
        found = {args.what: book.figure4() if args.what == "fig4" else book.figure5()}
    say(args, found, *(line for name, row in found.items() for line in atari.lines(name, row)))
    return 0


def _show(args) -> int:
    from darn.paper import atari
    from darn.paper.tables import as_text

    found = atari.rows(Path(args.results))
    note = "test nats per frame: bounds of the paper and of darn, on its split and by episode; --run makes the rest"
    say(args, found, *as_text(*atari.table(found)), "", note)
    return 0
