"""Figure 2: samples beside the training rows nearest to them, sample probabilities of intensities; training curves."""

from pathlib import Path

import numpy as np

from darn.data import nearest
from darn.files import atomic


def samples_beside_nearest(run, path: Path, *, n: int = 50, seed: int = 0) -> dict:
    """Left panel: pairs of a sample and its nearest training row, side by side. Returns the distances."""
    from darn.data import sheet, square_shape
    from darn.inference.sampling import sample

    train = run.splits().train
    x = sample(run.model, n, seed=seed).x
    number, distance = nearest(train, x)
    pairs = np.stack([x, train.take(number).unpack()], axis=1).reshape(2 * n, -1)
    sheet(pairs, run.shape or square_shape(train.n), path, columns=10)
    # how near are rows of the data to each other: the yardstick for "not simple memorisation"
    own = nearest(train, run.splits().valid.unpack()[:: max(1, len(run.splits().valid) // n)][:n])[1]
    return {
        "samples": n,
        "seed": seed,
        "mean_distance": float(distance.mean()),
        "least_distance": int(distance.min()),
        "copies": int((distance == 0).sum()),
        "mean_distance_of_validation_rows": float(own.mean()),
    }


def sample_probabilities(run, path: Path, *, n: int = 50, seed: int = 0) -> None:
    """Right panel: p(x = 1 | h) of ancestral codes, for a model of intensities."""
    import equinox as eqx
    import jax

    from darn.data import sheet, square_shape
    from darn.inference.sampling import sample

    h = sample(run.model, n, seed=seed).h
    model = run.model

    @eqx.filter_jit
    def means(model, h):
        return jax.vmap(lambda *h: model.decoder[0].layer.most_probable(model.above(0, h))[1])(*h)

    p = np.asarray(means(model, tuple(np.asarray(y, np.float32) for y in h)))
    sheet(p, run.shape or square_shape(model.n_x), path)


def curves(found: dict[str, dict], path: Path) -> int:
    """Training and validation bounds over the epochs, one panel a row that has them; how many there were."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = {k: r["training"]["curve"] for k, r in found.items() if r.get("training", {}).get("curve")}
    if not rows:
        return 0
    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False)
    for panel in panels.flat[len(rows) :]:
        panel.axis("off")
    for panel, (name, curve) in zip(panels.flat, rows.items()):
        epoch, train, valid = np.asarray(curve).T
        panel.plot(epoch, train, label="training")
        panel.plot(epoch, valid, label="validation")
        low = min(train.min(), valid.min())
        panel.set_ylim(low - 0.05 * low, np.median(valid) + 0.2 * low)
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("epoch")
        panel.set_ylabel("bound, nats")
        panel.legend(fontsize=7)
    figure.tight_layout()
    with atomic(path) as f:
        figure.savefig(f, dpi=120)
    plt.close(figure)
    return len(rows)
