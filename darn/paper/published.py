"""The best published figures on statically binarised MNIST (Larochelle & Murray's files), to set ours beside."""

from dataclasses import dataclass

from darn.paper.tables import figure


@dataclass(frozen=True)
class Published:
    """A figure of another paper, nats per test row."""

    model: str
    nll: float
    bound: float | None
    source: str


STATIC_MNIST = (
    Published("BIVA, trained on 60,000 rows", 78.59, None, "Maaløe et al., 2019"),
    Published("PixelVAE", 79.02, 79.66, "Gulrajani et al., 2017"),
    Published("VLAE", 79.03, None, "Chen et al., 2017"),
    Published("PixelRNN", 79.20, None, "van den Oord et al., 2016"),
    Published("IAF-VAE", 79.88, None, "Kingma et al., 2016"),
    Published("discrete VAE", 81.01, None, "Rolfe, 2017"),
)
OURS = {"mnist-frontier": "DARN, causal convolutions", "mnist-ours": "DARN, two stochastic layers"}


def table(found: dict[str, dict]) -> list[list[str]]:
    """Header and body: published figures and ours (`found`, rows by name), the lowest first."""
    rows = [
        (p.nll, [p.model, f"{p.nll:.2f}", "-" if p.bound is None else f"{p.bound:.2f}", p.source]) for p in STATIC_MNIST
    ]
    for name, model in OURS.items():
        if record := found.get(name):
            rows.append((record["nll"], [model, figure(record), figure(record, "bound"), f"ours, `{name}`"]))
    return [["model", "-log p", "bound", "source"], *(row for _, row in sorted(rows, key=lambda row: row[0]))]
