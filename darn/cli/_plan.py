"""The command `plan`."""

from dataclasses import asdict

from darn.cli._base import Commands, say, use_device
from darn.cli._train import asked_recipe


def plan(args) -> None:
    args.out, args.resume = None, True  # nothing is written, so nothing can be in the way
    _, recipe, splits = asked_recipe(args, "")
    wanted, args.devices = args.devices or 1, None  # which need not be here
    use_device(args)
    import jax

    from darn.runs import dataset
    from darn.runs.forecast import forecast

    splits = dataset.read_data(recipe) if splits is None else splits
    devices = jax.local_device_count() if wanted == "all" else wanted
    options = {"hosts": args.hosts, "shard_weights": args.shard_weights, "bandwidth": args.bandwidth}
    found = forecast(recipe, splits, devices=devices, **options)
    say(args, asdict(found), *_lines(args.recipe, found))


def _lines(name: str, found):
    size = lambda n: f"{n / 1e9:.2f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"  # noqa: E731
    more = found.compiling_bytes > found.activation_bytes
    where = "one device" if found.devices == 1 else f"{found.devices} devices of {found.hosts} hosts"
    yield f"{name} on {where}, {found.batch:,} rows a batch: {found.parameters:,} parameters"
    yield (
        f"  memory     {size(found.memory_bytes)} of a device's {size(found.available_bytes)}: weights and optimiser "
        f"{size(found.state_bytes)}, rows {size(found.data_bytes)}, activations {size(found.activation_bytes)}"
        + (f", at first {size(found.compiling_bytes)} to compile" if more else "")
    )
    yield f"  batch      up to {found.largest_batch:,} rows fit"
    part = f", of which {1e3 * found.exchange_seconds:.3g} ms to exchange with others" if found.devices > 1 else ""
    yield f"  step       {1e3 * found.step_seconds:.3g} ms{part}"
    each = f"{found.steps:,} steps, {found.validations:,} validations of {found.validation_seconds:.2g} s"
    yield f"  run        {_duration(found.seconds)}: {each}; early stopping and compilation not counted"


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def register(add: Commands) -> None:
    p = add.command(
        "plan",
        plan,
        "memory, time and the largest batch of a training, from a few measured steps",
        "  darn plan mnist-500\n  darn plan my.csv --n_h 64\n  darn plan mnist-500 --devices 8 --hosts 4 --batch 3200",
    )
    p.add_argument("recipe", help="a recipe's name, a data set's name, or your own file or folder")
    p.add_argument("--hosts", type=int, default=1, metavar="M", help="machines that train together (default 1)")
    add.sharding(p)
    p.add_argument(
        "--bandwidth",
        type=float,
        metavar="GB/S",
        help="of the slowest link between devices (default 50 within a host, 5 between hosts)",
    )
    p.add_argument("--tiny", action="store_true", help="shrink the recipe to a size that runs in seconds")
    add.computing(p)
    add.fields(p)
