"""Recording Atari frames, behind `darn data atari`."""

from functools import partial

from darn.cli._base import at_least_one, check_seed, names_in, say
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
    args.seed = 2014 if args.seed is None else args.seed
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
