"""Decides which models of a sweep share a program.

Hyper-parameters (`Hyper`) may differ within a program, and different numbers of units are made equal by padding
(`_pad`); models that differ in anything else go into different programs.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from darn.config import Architecture, Training
from darn.model import Stack
from darn.training import _hyper
from darn.training._pad import can_pad, check_padding

UNITS = ("n_h", "n_d", "encoder_d", "decoder_d")
_NOT_COMPUTED = ("checkpoint_every",)  # does not affect the result

Make = Callable[[Architecture, PRNGKeyArray], Stack]  # builds a fresh stack


@dataclass(frozen=True)
class Group:
    """Models that share a program: their numbers, and an architecture large enough for all of them."""

    members: tuple[int, ...]
    padded: Architecture

    @staticmethod
    def of(members: Sequence[int], architectures: Sequence[Architecture]) -> "Group":
        """The group of these members, given all `architectures`."""
        return Group(tuple(members), _largest([architectures[i] for i in members]))


def _largest(architectures: Sequence[Architecture]) -> Architecture:
    """The architecture with the most units of every kind."""

    def most(name):
        values = [getattr(a, name) for a in architectures]
        return None if values[0] is None else tuple(map(max, zip(*values)))

    return dataclasses.replace(architectures[0], **{k: most(k) for k in UNITS})


def _kind(architecture: Architecture, training: Training) -> tuple:
    """What must be equal for two models to share a program, however they are padded."""
    values = {f.name: getattr(architecture, f.name) for f in dataclasses.fields(Architecture)}
    values |= {k: None if values[k] is None else len(values[k]) for k in UNITS}
    values |= {f.name: getattr(training, f.name) for f in dataclasses.fields(Training)}
    # Models with and without a sparsity target do not share a program.
    values["sparsity"] = bool(training.sparsity)
    apart = (*(k for k in _hyper.NAMES if k != "sparsity"), *_NOT_COMPUTED)
    return tuple(sorted((k, repr(v)) for k, v in values.items() if k not in apart))


def shapes(make: Make, architecture: Architecture) -> Stack:
    """The stack of an architecture, as shapes without values."""
    return eqx.filter_eval_shape(lambda key: make(architecture, key), jax.random.key(0))


def _merged(groups: list[Group], programs: int, make: Make) -> list[Group]:
    """At most `programs` groups, by merging the pair that costs the fewest padded weights, again and again."""
    known: dict[Architecture, int] = {}

    def n_weights(architecture: Architecture) -> int:
        if architecture not in known:
            known[architecture] = sum(math.prod(w.shape) for w in jax.tree.leaves(shapes(make, architecture)))
        return known[architecture]

    def cost(group: Group) -> int:
        return len(group.members) * n_weights(group.padded)

    while len(groups) > programs:
        pairs = itertools.combinations(groups, 2)
        merged = [(a, b, Group(a.members + b.members, _largest([a.padded, b.padded]))) for a, b in pairs]
        a, b, both = min(merged, key=lambda m: cost(m[2]) - cost(m[0]) - cost(m[1]))
        groups = [g for g in groups if g is not a and g is not b] + [both]
    return groups


def _may_pad(groups: list[Group], training: Training, make: Make) -> bool:
    """Whether models of these groups may be padded to a common number of units.

    Not if added units would count: the sparsity target is a fraction of the units, and weight noise has a cost for
    every weight.

    Raises:
        DarnError: if a layer does not mark the weights that read its context.
    """
    if training.sparsity or training.noise != "none":
        return False
    small = shapes(make, groups[0].padded)
    if not can_pad(small):
        return False
    check_padding(small, shapes(make, _largest([g.padded for g in groups])))
    return True


def plan(
    architectures: Sequence[Architecture],
    trainings: Sequence[Training],
    make: Make,
    *,
    programs: int | None = None,
) -> list[Group]:
    """Groups of models that share a program.

    Every distinct number of units begins as a group. Then, while a kind of model has more than `programs` groups, the
    two whose merging costs the fewest padded weights are merged.

    Args:
        architectures: of every model.
        trainings: of every model.
        make: builds the fresh stack of an architecture.
        programs: the most programs for each kind of model; None pads nothing.

    Returns:
        The groups.
    """
    kinds: dict[tuple, dict[tuple, list[int]]] = {}
    for i, (a, t) in enumerate(zip(architectures, trainings, strict=True)):
        units = tuple(getattr(a, k) for k in UNITS)
        kinds.setdefault(_kind(a, t), {}).setdefault(units, []).append(i)
    planned = []
    for by_units in kinds.values():
        groups = [Group(tuple(m), architectures[m[0]]) for m in by_units.values()]
        first = trainings[groups[0].members[0]]
        if programs is not None and len(groups) > programs and _may_pad(groups, first, make):
            groups = _merged(groups, programs, make)
        planned += [Group(tuple(sorted(g.members)), g.padded) for g in groups]
    return planned
