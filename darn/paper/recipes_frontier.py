"""Recipes beyond the paper's architectures: a visible layer of causal convolutions over a binary code, for a GPU."""

from darn.config import Architecture, DataOptions, LocalLayer, Training
from darn.runs.recipe import Recipe

# The visible layer is a mixture over all symmetries of the image, which it can tell apart. Adam, dropout, averaged
# weights. The cost of the code rises over the first epochs: otherwise the convolutions learn alone, and the code stays
# idle.
_TRAINING = Training(optimizer="adam", schedule="cosine", clip=1.0, batch=128, average=0.9995)


def _frontier(data: str, description: str, local: tuple[LocalLayer, ...], **fields) -> Recipe:
    shape = Architecture(activation="relu", visible="conv", local=local, period=1, orders="symmetries")
    return Recipe(shape, _TRAINING, DataOptions(data), description=description).replace(**fields)


FRONTIER: dict[str, Recipe] = {
    "mnist-frontier": _frontier(
        "binarized_mnist",
        "Table 2, DARN, ours: causal convolutions in eight orders over a binary code",
        (LocalLayer(5, 1, 32), LocalLayer(3, 2, 64), LocalLayer(3, 2, 64)),
        n_h=(64,),
        n_d=(256,),
        conv_channels=96,
        conv_blocks=10,
        dropout=0.3,
        lr=6e-4,
        epochs=130,
        warmup=0.02,
        validate_every=4,
    ),
    "ocr_letters-ours": _frontier(
        "ocr_letters",
        "Table 1, DARN, ours, ocr_letters: causal convolutions in four orders over a binary code",
        (LocalLayer(3, 1, 16), LocalLayer(3, 2, 32)),
        n_h=(32,),
        n_d=(200,),
        conv_channels=64,
        conv_blocks=8,
        dropout=0.4,
        lr=1e-3,
        epochs=80,
        warmup=0.05,
        validate_every=4,
    ),
}
