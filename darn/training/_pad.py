"""Padding: a stack embedded in a larger one of the same form, whose additional units are exactly inert.

An added stochastic unit has a bias of -10,000 and zero weights: it is never on and its log-probability is 0; in float32
both hold exactly, and so for their gradients. An added deterministic unit has zero weights: tanh and ReLU map 0 to 0.
So a padded stack is the same distribution as the original, and trains to the same weights.

Units are added at the end of a layer. Weights that read several concatenated layers get their new entries in between;
the layers declare which arrays these are, and which are biases (`context_field`, `bias_field`).
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from darn.errors import DarnError
from darn.model import Conditional, Stack

ADVICE = "change that, or allow as many programs as there are sizes"
NEVER = -1e4  # exp underflows to 0 well before this in float32, and float16 can still represent it


def _parents(stack: Stack, side: str, l: int) -> list[int]:
    """The sizes of the parents of decoder[l] or encoder[l]."""
    if side == "decoder":
        known = stack.n_h[l:] if stack.skip else stack.n_h[l : l + 1]
    else:
        known = (stack.n_x, *stack.n_h[:l])
        known = known if stack.skip else known[-1:]
    return [*known, stack.n_context]


def _parts(stack: Stack) -> Iterator[tuple[str, int, Conditional]]:
    for side in ("decoder", "encoder"):
        for l, part in enumerate(getattr(stack, side)):
            yield side, l, part


def _roles(tree: Any, path: tuple) -> set[str]:
    """The roles of the fields on the path to an array."""
    roles = set()
    for step in path:
        name = getattr(step, "name", None)
        if name is None:
            tree = tree[step.idx if hasattr(step, "idx") else step.key]
        else:
            metadata = next(f.metadata for f in dataclasses.fields(tree) if f.name == name)
            roles |= {metadata["role"]} if "role" in metadata else set()
            tree = getattr(tree, name)
    return roles


def _first_map(path: tuple) -> bool:
    """Whether an array of a conditional belongs to the first map of its net, which reads the parents."""
    return [getattr(k, "name", getattr(k, "idx", None)) for k in path[:3]] == ["net", "maps", 0]


def _places(small: Stack, padded: Stack) -> Iterator[tuple[Any, float]]:
    """For every array of `small`: its position in the padded one, axis by axis, and the value that pads it."""
    for (side, l, part), (_, _, padded_part) in zip(_parts(small), _parts(padded)):
        before, after = (_parents(s, side, l) for s in (small, padded))
        first = np.cumsum([0, *after])
        columns = np.concatenate([at + np.arange(n) for n, at in zip(before, first)])
        is_hidden = not (side == "decoder" and l == 0)
        arrays = jax.tree_util.tree_leaves_with_path(part)
        roles = [_roles(part, path) for path, _ in arrays]
        layer = type(part.layer).__name__
        if before != after and part.net is None and not any("context" in r for r in roles):
            raise DarnError(
                f"{layer} cannot be padded: it has a context, but marks no field with context_field(); {ADVICE}"
            )
        if is_hidden and part.layer.n != padded_part.layer.n and not any("bias" in r for r in roles):
            raise DarnError(f"{layer} cannot be padded: it marks no field with bias_field(); {ADVICE}")
        for (path, w), role in zip(arrays, roles):
            index = [np.arange(n) for n in w.shape]  # in the leading corner: units are added at the end
            reads = "context" in role if part.net is None else _first_map(path)
            if before != after and reads and len(w.shape) > 1:
                if w.shape[-1] != sum(before):
                    where = jax.tree_util.keystr(path)
                    raise DarnError(
                        f"{layer} cannot be padded: the last axis of {where} does not run over its context; {ADVICE}"
                    )
                index[-1] = columns
            yield np.ix_(*index), NEVER if is_hidden and "bias" in role else 0


def can_pad(stack: Stack) -> bool:
    """Whether hidden units can be added: not if a hidden layer has arrays over its units that are not weights."""
    hidden = [part.layer for side, l, part in _parts(stack) if not (side == "decoder" and l == 0)]
    return all(np.issubdtype(w.dtype, np.floating) for w in jax.tree.leaves(hidden))


def check_padding(small: Stack, padded: Stack) -> None:
    """Raises DarnError if a layer does not mark the weights that read its context, or its biases."""
    for _ in _places(small, padded):
        pass


def pad(small: Stack, padded: Stack) -> Stack:
    """`small` in the form of `padded`, a stack with at least as many units, whose values do not matter.

    Raises:
        DarnError: see `check_padding`.
    """
    leaves, form = jax.tree.flatten(padded)

    def put(w, like, where, fill):
        out = np.full(like.shape, fill, like.dtype)
        out[where] = np.asarray(w)
        return out

    arrays = [put(w, v, *place) for w, v, place in zip(jax.tree.leaves(small), leaves, _places(small, padded))]
    return jax.tree.unflatten(form, arrays)


def unpad(padded: Stack, small: Stack) -> Stack:
    """The inverse of `pad`: the part of `padded` in the form of `small`."""
    arrays = zip(jax.tree.leaves(padded), _places(small, padded))
    taken = jax.device_put([np.asarray(w)[where] for w, (where, _) in arrays])
    return jax.tree.unflatten(jax.tree.structure(small), taken)
