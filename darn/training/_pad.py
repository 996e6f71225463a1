"""Padding: a stack inside a larger one of the same form, the units it does not have being exactly inert.

A stochastic unit that is not there has a bias of -10,000 and no weights: it is never on, its log-probability is 0, and
float32 makes both exact, their gradients too. A deterministic unit that is not there has no weights at all: tanh and
ReLU send 0 to 0. So a padded stack is the same distribution as the one inside, and trains to the same weights.
"""

from typing import Any

import jax
import numpy as np

from darn.model import Conditional, Stack

NEVER = -1e4  # exp underflows to 0 well before this in float32, and float16 still holds it


def _parents(stack: Stack, part: str, l: int) -> list[int]:
    """The units that decoder[l] or encoder[l] is given, by parent."""
    if part == "decoder":
        known = stack.n_h[l:] if stack.skip else stack.n_h[l : l + 1]
    else:
        known = (stack.n_x, *stack.n_h[:l])
        known = known if stack.skip else known[-1:]
    return [*known, stack.n_context]


def _reads_parents(part: Conditional, names: list) -> bool:
    """Whether the last axis of this array of a conditional runs over its parents' units."""
    if part.net is not None:
        return names == ["net", "maps", 0, "W"]
    return names[-1] == "W" and names[-2] in ("U", "A", "G")  # a layer's maps from its context


def _places(small: Stack, padded: Stack):
    """For every array of `small`: where it lies in the padded one, axis by axis, and what surrounds it there."""
    for path, w in jax.tree_util.tree_leaves_with_path(small):
        names: list[Any] = [getattr(k, "name", getattr(k, "idx", None)) for k in path]
        side, l, names = names[0], names[1], names[2:]
        index = [np.arange(n) for n in w.shape]
        if _reads_parents(getattr(small, side)[l], names):
            first = np.cumsum([0, *_parents(padded, side, l)])
            index[-1] = np.concatenate([at + np.arange(n) for n, at in zip(_parents(small, side, l), first)])
        # everything else lies in the leading corner: units are added at the end
        is_hidden_bias = names == ["layer", "b"] and not (side == "decoder" and l == 0)
        yield np.ix_(*index), NEVER if is_hidden_bias else 0


def pad(small: Stack, padded: Stack) -> Stack:
    """`small` in the form of `padded`, a stack with at least its units, whose values (if it has any) do not matter."""
    leaves, form = jax.tree.flatten(padded)

    def put(w, like, where, fill):
        out = np.full(like.shape, fill, like.dtype)
        out[where] = np.asarray(w)
        return out

    arrays = [put(w, v, *place) for w, v, place in zip(jax.tree.leaves(small), leaves, _places(small, padded))]
    return jax.tree.unflatten(form, arrays)


def unpad(padded: Stack, small: Stack) -> Stack:
    """The inverse of `pad`: the part of `padded` that has the form of `small`."""
    taken = [np.asarray(w)[where] for w, (where, _) in zip(jax.tree.leaves(padded), _places(small, padded))]
    return jax.tree.unflatten(jax.tree.structure(small), taken)
