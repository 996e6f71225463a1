"""The hyper-parameters that are arguments of the compiled program, and its optional terms."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from darn.config import Training


class Hyper(eqx.Module):
    """Hyper-parameters that may differ between the models of one program; see `Training` for their meaning.

    Scalars for one model; arrays with a leading axis over the models for several.
    """

    lr: Float[Array, "*K"]
    momentum: Float[Array, "*K"]
    weight_decay: Float[Array, "*K"]
    l1: Float[Array, "*K"]
    average: Float[Array, "*K"]
    sparsity: Float[Array, "*K"]
    seed: Int[Array, "*K"]

    @staticmethod
    def of(config: Training) -> "Hyper":
        """The hyper-parameters of one model."""
        kind = {"seed": np.int32}
        return Hyper(**{k: jax.device_put(np.asarray(getattr(config, k), kind.get(k, np.float32))) for k in NAMES})

    @staticmethod
    def stacked(configs: Sequence[Training]) -> "Hyper":
        """The hyper-parameters of several models, with a leading axis over them."""
        return jax.tree.map(lambda *values: jax.device_put(np.stack(values)), *map(Hyper.of, configs))


NAMES = tuple(f.name for f in dataclasses.fields(Hyper))


def shared(config: Training) -> Training:
    """The config without its hyper-parameters: the part that is compiled into a program."""
    names = [f.name for f in dataclasses.fields(Training) if f.name not in NAMES]
    return Training(**{k: getattr(config, k) for k in names})


class Terms(NamedTuple):
    """Optional terms of a program, each present only if one of its models uses it."""

    weight_decay: bool
    l1: bool
    average: bool
    sparsity: bool

    @staticmethod
    def of(configs: Sequence[Training]) -> "Terms":
        return Terms(*(any(getattr(c, k) for c in configs) for k in Terms._fields))
