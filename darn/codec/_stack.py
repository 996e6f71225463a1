"""Bits-back coding of rows with a model, layer by layer, many rows at once.

To push x: pop h from q(h|x), which takes bits off the stack; push x under p(x|h) and h under p(h). To pop x, do the
reverse: the bits that chose h are pushed back. The net length is log q(h|x) - log p(x,h), Eq. (15). With several layers
and nearest parents, pops and pushes alternate (Bit-Swap: few initial bits are needed); with skip connections all of q
is popped first.

Each unit is coded for all rows before the next one, so that an autoregressive layer decodes all rows at once.
"""

from typing import Any

import numpy as np

from darn.codec import _choice
from darn.codec._ans import Ans
from darn.codec._evaluate import Bits, Evaluator, FirstStates
from darn.model import Stack


class Lengths:
    """Bits spent on each decoder layer and recovered from each encoder layer."""

    def __init__(self, n_layers: int):
        self.p, self.q = np.zeros(n_layers + 1), np.zeros(n_layers)

    def __iadd__(self, other: "Lengths") -> "Lengths":
        self.p, self.q = self.p + other.p, self.q + other.q
        return self


class StackCodec:
    """Pushes rows onto a stack of bits and pops them."""

    def __init__(self, twin: Stack, batch: int | None = None):
        self.twin, self.evaluate = twin, Evaluator(twin, batch)
        self.takes_bits = bool(twin.n_layers or self.evaluate.sequences)  # off the stack

    # One conditional, given the layers known so far; `h` begins at h^1 for both p and q.

    def _push(
        self, ans: Ans, side: str, l: int, y: Bits, x, h, mask: Bits | None = None, *, bits_back: bool = True
    ) -> float:
        sequences = self.evaluate.sequences.get((side, l))
        if sequences is None:
            a = self.evaluate.logits(side, l, y, x, h)
            return ans.push(y.T, a) if mask is None else ans.push(y.T[mask.T], a[mask.T])
        # The order is popped from its posterior; without bits back it is the most probable one.
        (each, lengths), cost = self.evaluate.lengths(side, l, y, x, h, mask), 0.0
        if bits_back:
            orders, cost = ans.pop_choices(_choice.posterior(lengths))
            ans.note()
        else:
            orders = lengths.argmin(axis=0)
        units = sequences[orders]
        a = np.stack([each[k][own, i] for i, (k, own) in enumerate(zip(orders, units))], axis=1)
        bits = np.take_along_axis(y, units, axis=1).T
        there = ... if mask is None else np.take_along_axis(mask, units, axis=1).T
        cost = ans.push(bits[there], a[there]) - cost
        return cost + ans.push_choices(orders, _choice.uniform(len(y), len(sequences)))

    def _pop(
        self,
        ans: Ans,
        side: str,
        l: int,
        rows: int,
        x,
        h,
        mask: Bits | None = None,
        *,
        bits_back: bool = True,
        state: Any = None,
    ) -> tuple[Bits, float]:
        sequences, orders, total = self.evaluate.sequences.get((side, l)), None, 0.0
        if sequences is not None:
            orders, total = ans.pop_choices(_choice.uniform(rows, len(sequences)))

        def choose(units, a):
            nonlocal total
            if mask is None:
                bits, cost = ans.pop(a)
            else:
                there = mask.T[units] if orders is None else mask[np.arange(rows), units]
                bits = np.zeros(a.shape, np.uint8)
                bits[there], cost = ans.pop(a[there])
            total += cost
            return bits

        def choose_linear(a, W):
            nonlocal total
            bits, cost = ans.pop_linear(a, W)
            total += cost
            return bits

        linear = choose_linear if mask is None else None
        y = self.evaluate.walk(side, l, rows, x, h, choose, orders, linear, state)
        ans.note()
        if orders is not None and bits_back:
            _, lengths = self.evaluate.lengths(side, l, y, x, h, mask)
            total -= ans.push_choices(orders, _choice.posterior(lengths))
        return y, total

    def first_states(self, x: Bits) -> FirstStates | None:
        """The states of q(h^1|x) for these rows; None if there is no such layer, or its order is chosen first."""
        known = self.twin.n_layers and ("q", 0) not in self.evaluate.sequences
        return FirstStates(self.evaluate, x) if known else None

    def most_probable(self, x: Bits, state: Any = None) -> tuple[Bits, ...]:
        """The code with every unit of q(h|x) at its more probable value; it takes no bits from the stack."""
        h: tuple[Bits, ...] = ()
        for k in range(self.twin.n_layers):
            orders = np.zeros(len(x), np.int64) if ("q", k) in self.evaluate.sequences else None
            own = None if k else state
            found = self.evaluate.walk("q", k, len(x), x, h, lambda _, a: (a > 0).astype(np.uint8), orders, state=own)
            h = (*h, found)
        return h

    def push(
        self, ans: Ans, x: Bits, mask: Bits | None = None, *, bits_back: bool = True, state: Any = None
    ) -> tuple[Lengths, int]:
        """Pushes rows.

        Args:
            ans: the stack of bits.
            x: (rows, n_x).
            mask: (rows, n_x), False for units of x that are not coded; they must be 0.
            bits_back: whether to sample the code from bits on the stack; otherwise it is the most probable one.
            state: of these rows, from `first_states`; None computes it.

        Returns:
            The lengths, and how many bits had to be on the stack.

        Raises:
            Empty: if there were too few bits on the stack, which is then unusable.
        """
        L, found = self.twin.n_layers, Lengths(self.twin.n_layers)
        before = ans.size
        ans.watch()
        h: tuple[Bits, ...] = () if bits_back else self.most_probable(x, state)
        late = self.twin.skip or not bits_back

        def push(l, h):
            there = None if l else mask
            return self._push(ans, "p", l, (x, *h)[l], None, _given(h, l), there, bits_back=bits_back)

        for k in range(L):
            if bits_back:
                y, found.q[k] = self._pop(ans, "q", k, len(x), x, h, state=None if k else state)
                h = (*h, y)
            if not late:  # the layer below is no longer needed as a parent
                found.p[k] = push(k, h)
        for l in range(0 if late else L, L + 1):
            found.p[l] = push(l, h)
        return found, before - ans.lowest

    def pop(self, ans: Ans, rows: int, mask: Bits | None = None, *, bits_back: bool = True) -> Bits:
        """The rows that `push` pushed; restores the stack to its state before."""
        L = self.twin.n_layers
        known: tuple[Bits, ...] = ()  # layers l + 1 and up
        early = bits_back and not self.twin.skip
        for l in range(L, -1, -1):
            blank = (np.zeros((rows, 0), np.uint8),) * l
            there = None if l else mask
            y, _ = self._pop(ans, "p", l, rows, None, (*blank, *known), there, bits_back=bits_back)
            known = (y, *known)
            if early and l < L:
                self._give_back(ans, l, (*blank, *known))
        if bits_back and self.twin.skip:
            for k in range(L - 1, -1, -1):
                self._give_back(ans, k, known)
        return known[0]

    def _give_back(self, ans: Ans, k: int, layers: tuple[Bits, ...]) -> None:
        """Pushes h^(k+1) under q, which restores the bits that chose it."""
        self._push(ans, "q", k, layers[k + 1], layers[0], layers[1 : k + 1])


def _given(h: tuple[Bits, ...], l: int) -> tuple[Bits, ...]:
    """h for decoder[l], which sees only the layers above l."""
    return tuple(y if k >= l else y[:, :0] for k, y in enumerate(h))
