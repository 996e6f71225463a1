"""The equations as loops in plain NumPy, double precision. Of darn they use nothing but the arrays.

Numbers in brackets are the paper's equations.
"""

import itertools
import math

import numpy as np
from scipy import special


def f64(w):
    return np.asarray(w, np.float64)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


# ---------------------------------------------------------------- maps


def apply(m, c):
    """A deterministic map."""
    kind = type(m).__name__
    c = f64(c)
    if kind == "Tanh":
        return np.tanh(c)
    if kind == "ReLU":
        return np.where(c > 0, c, 0.0)
    if kind == "Sigmoid":
        return sigmoid(c)
    if kind == "Dense":
        out = np.array([sum(w * v for w, v in zip(row, c)) for row in f64(m.W)])
        return out if m.b is None else out + f64(m.b)
    if kind == "Net":
        for f in m.maps:
            c = apply(f, c)
        return c
    if kind == "CausalDense":
        W = f64(m.W)
        return np.array([sum(W[j, i] * c[i] for i in range(j)) for j in range(len(c))])
    if kind == "Local":
        out = local_matrix(m) @ c
        if m.b is not None:
            rows, columns, F = m.out
            P, Q = m.W.shape[:2]
            b = f64(m.b).reshape(P, Q, F)
            out = out + np.array([b[i % P, j % Q] for i in range(rows) for j in range(columns)]).ravel()
        return out
    if kind == "LocalTranspose":
        out = local_matrix(m.of).T @ c
        return out if m.b is None else out + np.tile(f64(m.b), len(out) // len(m.b))
    if kind == "CausalLocal":
        return causal_local_matrix(m) @ c
    raise NotImplementedError(f"write down the equation of {kind} here")


def local_matrix(m):
    """A locally connected map as a matrix: cell (i, j) has the kernel of its phase over a window of the input."""
    W, (H, V, C), s = f64(m.W), m.grid, m.stride
    P, Q, k, _, _, F = W.shape
    rows, columns = -(-H // s), -(-V // s)
    above, left = (max((n - 1) * s + k - size, 0) // 2 for n, size in ((rows, H), (columns, V)))
    M = np.zeros((rows, columns, F, H, V, C))
    for i, j, a, b in itertools.product(range(rows), range(columns), range(k), range(k)):
        y, x = i * s + a - above, j * s + b - left
        if 0 <= y < H and 0 <= x < V:
            M[i, j, :, y, x, :] = W[i % P, j % Q, a, b].T
    return M.reshape(rows * columns * F, H * V * C)


def causal_local_matrix(m):
    """Unit (i, j, f) sees unit (y, x, g) if that comes before it, at most r rows above and r cells aside."""
    W, (H, V, C) = f64(m.W), m.grid
    P, Q, _, k = W.shape[:4]
    r = k // 2
    units = list(itertools.product(range(H), range(V), range(C)))
    M = np.zeros((len(units), len(units)))
    for to, (i, j, f) in enumerate(units):
        for source, (y, x, g) in enumerate(units[:to]):
            if i - y <= r and abs(j - x) <= r:
                M[to, source] = W[i % P, j % Q, r - (i - y), r + (x - j), g, f]
    return M


# ---------------------------------------------------------------- layers


def _from_context(U, c, n):
    return np.zeros(n) if U is None else apply(U, c)


def _bits(y, p):
    return sum(math.log(p_j if y_j else 1 - p_j) for y_j, p_j in zip(y, p))


def factorial(layer, y, c):
    """(6)"""
    return _bits(y, sigmoid(f64(layer.b) + _from_context(layer.U, c, layer.n)))


def linear(layer, y, c):
    """(2) and (5): row j of W onto unit j, from the units before it."""
    a = f64(layer.b) + _from_context(layer.U, c, layer.n) + apply(layer.W, y)
    return _bits(y, sigmoid(a))


def nade(layer, y, c, order=None, signed=False):
    """Larochelle & Murray (2011), units in the given order; M: the mask's weights of Uria et al. (2013)."""
    b = f64(layer.b) + _from_context(layer.U, c, layer.n)
    e = f64(layer.e) + _from_context(layer.A, c, len(layer.e))
    V, R = f64(layer.V), f64(layer.R)
    known, total = [], 0.0
    for j in range(layer.n) if order is None else order:
        inside = e.copy()
        for i in known:
            inside = inside + (2 * y[i] - 1 if signed else y[i]) * V[i]
            if layer.M is not None:
                inside = inside + f64(layer.M)[i]
        d = apply(layer.net, apply(layer.act, inside))
        p = sigmoid(b[j] + R[j] @ d)
        total += math.log(p if y[j] else 1 - p)
        known.append(j)
    return total


def eonade(layer, y, c):
    """The mean probability over the K orders."""
    orders = np.asarray(layer.orders)
    each = [nade(layer.core, y, c, order, layer.signed) for order in orders]
    return math.log(sum(map(math.exp, each)) / len(orders))


def eonade_all_orders(layer, y, c):
    """The mean log-probability over every order there is: what EoNADE is trained on."""
    orders = list(itertools.permutations(range(layer.n)))
    return sum(nade(layer.core, y, c, order, layer.signed) for order in orders) / len(orders)


def mixture(layer, y, c):
    """sum_k pi_k prod_j p_kj."""
    K = len(layer.pi)
    weights = np.exp(f64(layer.pi) + _from_context(layer.G, c, K))
    weights = weights / weights.sum()
    base = f64(layer.b) + _from_context(layer.U, c, layer.n)
    return math.log(sum(weights[k] * math.exp(_bits(y, sigmoid(base + f64(layer.B)[k]))) for k in range(K)))


def _elu(a):
    return np.where(a > 0, a, np.expm1(np.minimum(a, 0)))


def _convolution(f, x):
    """Every cell: the kernel over the rows above and its own, to both sides or to the left."""
    W, d = f64(f.W), f.dilation
    kh, kw = W.shape[:2]
    out = np.zeros((*x.shape[:2], W.shape[3]))
    for i, j, a, b in np.ndindex(*x.shape[:2], kh, kw):
        row, column = i - (kh - 1 - a) * d, j - (kw - 1 - b if f.left else kw // 2 - b) * d
        if 0 <= row < x.shape[0] and 0 <= column < x.shape[1]:
            out[i, j] += x[row, column] @ W[a, b]
    return out


def _gate(a):
    value, door = np.split(a, 2, axis=-1)
    return value * sigmoid(door)


def conv(layer, y, c, order=None, k=0):
    """Gated convolutions in two streams, van den Oord et al. (2016); `order`: the units turned, k its number."""
    H, W, D = layer.grid
    order = np.arange(layer.n) if order is None else np.asarray(order)
    x = y[order].reshape(H, W, D)
    pixels = np.concatenate([2 * x - 1, np.ones((H, W, 1))], axis=2)
    down, right = np.zeros_like(pixels), np.zeros_like(pixels)
    down[1:], right[:, 1:] = pixels[:-1], pixels[:, :-1]
    v, gates = _convolution(layer.up, down), f64(layer.gates)[k][:, None, None]  # (L, 1, 1, 2, 2C)
    if layer.is_told:
        every = np.zeros((H, W, len(layer.e)))
        if layer.U is not None:
            given = apply(layer.U, c)
            every = every + (given.reshape(every.shape) if given.size > len(layer.e) else given)
        if layer.of_row is not None:
            every = every + f64(layer.of_row)[:, None] + f64(layer.of_column)
        every = every.reshape(H * W, -1)
        given = every[order[::D] // D].reshape(H, W, -1)
        v, steered = v + given, np.stack([_elu(given) @ S for S in f64(layer.steer)])
        gates = gates + steered.reshape(len(gates), H, W, 2, -1)
    h = _convolution(layer.left, right) + _convolution(layer.link, _elu(v))
    for block, bias in zip(layer.blocks, gates):
        b = f64(block.b)
        inside = _convolution(block.up[0], _elu(v)) + b[0]
        v = v + _gate(_convolution(block.up[1], _elu(inside)) + bias[..., 0, :])
        inside = _convolution(block.left[0], _elu(h)) + _convolution(block.link, _elu(v)) + b[1]
        h = h + _gate(_convolution(block.left[1], _elu(inside)) + bias[..., 1, :])
    hidden = _elu(h) @ f64(layer.head) + f64(layer.e)
    a = np.zeros((H, W, D))
    for f in range(D):
        a[:, :, f] = _elu(hidden + x[:, :, :f] @ f64(layer.V)[:f]) @ f64(layer.R)[f]
    return _bits(x.ravel(), sigmoid(a.ravel() + f64(layer.b)[order]))


def orders(layer, y, c):
    """The mean probability over the orders."""
    each = [math.exp(conv(layer.core, y, c, order, k)) for k, order in enumerate(np.asarray(layer.places))]
    return math.log(sum(each) / len(each))


def spelled(group):
    """Every row of bits that spells a value of a group."""
    if isinstance(group, int):
        return [(0.0,), (1.0,)] if group == 1 else [tuple(float(i == k) for i in range(group)) for k in range(group)]
    largest, optional = group
    size = largest.bit_length()
    words = [tuple(float(v >> i & 1) for i in range(size - 1, -1, -1)) for v in range(largest + 1)]
    return [(0.0,) * (size + 1), *((1.0, *w) for w in words)] if optional else words


def groups(layer, y, c):
    """The chain rule over the inner layer, without the units whose group has one continuation alone."""
    table = _prefixes(layer.layer, None if c is None else tuple(c))
    total, j = 0.0, 0
    for group in layer.groups:
        values = spelled(group)
        size = len(values[0])
        mine = tuple(y[j : j + size])
        if mine not in values:
            return -math.inf
        for i in range(size):
            if len({v[i] for v in values if v[:i] == mine[:i]}) == 2:
                total += table[tuple(y[: j + i + 1])] - table[tuple(y[: j + i])]
        j += size
    return total


def numbers(layer, y, c):
    """The chain rule over the inner layer, the odds of a number's bits times those of a logistic distribution."""
    table, edges = _prefixes(layer.layer, None if c is None else tuple(c)), f64(layer.edges) / 2**10
    k, W = np.exp(f64(layer.log_k)), np.tril(f64(layer.W.W), -1)
    mean = f64(layer.b) + (0 if layer.U is None else apply(layer.U, c))
    owner = {first + d: (g, d) for g, (first, bits, _) in enumerate(layer.words) for d in range(bits)}
    low, total = [0] * len(k), 0.0
    A, B = (np.zeros(0) if v is None else f64(v) for v in (layer.A, layer.B))
    factors = np.zeros(B.shape[-1])
    mass = lambda a, b, m, k: special.expit(k * (b - m)) - special.expit(k * (a - m))  # noqa: E731
    for j in range(layer.n):
        odds = table[(*y[:j], 1.0)] - table[(*y[:j], 0.0)] + (B[j] @ factors if len(B) else 0)
        if j in owner:
            g, d = owner[j]
            _, bits, flag = layer.words[g]
            size = 1 << (bits - 1 - d)
            a, b, e = (edges[g, low[g] + i * size] for i in (0, 1, 2))
            if a < b < e:
                odds += math.log(mass(b, e, mean[g], k[g]) / mass(a, b, mean[g], k[g]))
                odds -= math.log(mass(b, e, 0, 1) / mass(a, b, 0, 1))
            low[g] += size * int(y[j])
            if d == bits - 1 and (flag < 0 or y[flag]):
                mean = mean + W[:, g] * (edges[g, low[g]] + edges[g, low[g] + 1]) / 2
                factors = factors + (A[g, min(low[g], A.shape[1] - 1)] if len(A) else 0)
        elif y[j]:
            later = np.array([first > j for first, _, _ in layer.words])
            mean = mean + np.where(later, f64(layer.V)[j], 0)
        total -= math.log1p(math.exp(-odds if y[j] else odds))
    return total


_TABLES = {}


def _prefixes(layer, c):
    """log p of the first units of every y, by summing over the units that follow."""
    if id(layer) not in _TABLES:
        p = {y: math.exp(log_prob(layer, y, c)) for y in itertools.product((0.0, 1.0), repeat=layer.n)}
        for n in range(layer.n - 1, -1, -1):
            p |= {y: p[*y, 0.0] + p[*y, 1.0] for y in itertools.product((0.0, 1.0), repeat=n)}
        _TABLES[id(layer)] = layer, {y: math.log(v) for y, v in p.items()}  # the layer too, so that no other has its id
    return _TABLES[id(layer)][1]


LAYERS = {
    "Groups": groups,
    "Numbers": numbers,
    "Factorial": factorial,
    "LinearAutoregressive": linear,
    "NADE": nade,
    "EoNADE": eonade,
    "Mixture": mixture,
    "CausalConv": conv,
    "Orders": orders,
}


def log_prob(layer, y, c=None):
    return LAYERS[type(layer).__name__](layer, f64(y), None if c is None else f64(c))


# ---------------------------------------------------------------- stacks


def _given(conditional, parents):
    parents = [f64(p) for p in parents if p is not None]
    if not parents:
        return None
    c = np.concatenate(parents)
    return c if conditional.net is None else apply(conditional.net, c)  # (9)


def log_p(model, x, h, context=None):
    """log p(x, h), (7): every layer given the one above it, or all above it, and the context."""
    total = 0.0
    levels = [x, *h]
    for l, part in enumerate(model.decoder):
        above = levels[l + 1 :] if model.skip else levels[l + 1 : l + 2]
        total += log_prob(part.layer, levels[l], _given(part, [*above, context]))
    return total


def log_q(model, x, h, context=None):
    """log q(h | x), (8)."""
    total = 0.0
    levels = [x, *h]
    for k, part in enumerate(model.encoder):
        below = levels[: k + 1] if model.skip else levels[k : k + 1]
        total += log_prob(part.layer, levels[k + 1], _given(part, [*below, context]))
    return total


def codes(model):
    """Every h, as a tuple of layers."""
    each = [list(itertools.product((0.0, 1.0), repeat=n)) for n in model.n_h]
    return list(itertools.product(*each))


def exact(model, x, context=None):
    """log p(x) = log sum_h p(x, h)."""
    return math.log(sum(math.exp(log_p(model, x, h, context)) for h in codes(model)))


def expected_description_length(model, x, context=None):
    """(14)"""
    total = 0.0
    for h in codes(model):
        q = log_q(model, x, h, context)
        total += math.exp(q) * (q - log_p(model, x, h, context))
    return total


# ---------------------------------------------------------------- work


class Counter:
    """Weights multiplied with a real value, and weights added because a bit is on, one by one."""

    def __init__(self):
        self.multiplied = self.added = 0

    def product(self, W, v):
        if all(e in (0, 1) for e in v):
            self.added += sum(len(W) for e in v if e)
        else:
            self.multiplied += len(W) * len(v)
        return W @ v

    def net(self, net, v):
        for f in () if net is None else net.maps:
            if hasattr(f, "W"):
                self.product(f64(f.W), v)
            v = apply(f, v)
        return v


def work(model, x, h):
    """What drawing (x, h) takes by ancestral sampling, no work being done for a bit that is off."""
    count, levels = Counter(), [x, *h]
    for l, part in enumerate(model.decoder):
        above = levels[l + 1 :] if model.skip else levels[l + 1 : l + 2]
        c = count.net(part.net, np.concatenate([f64(v) for v in above])) if above else None
        layer = getattr(part.layer, "core", part.layer)
        for U in (getattr(layer, "U", None), getattr(layer, "A", None)):
            if U is not None:
                count.product(f64(U.W), c)
        for j, y in enumerate(levels[l]):
            if hasattr(
                layer, "V"
            ):  # NADE: a hidden layer read out for every unit, and written to by every one that is on
                count.net(layer.net, np.full(layer.V.shape[1], 0.5))
                count.multiplied += layer.R.shape[1]
                count.added += layer.V.shape[1] * (int(y) + (layer.M is not None))
            elif hasattr(layer, "W") and y:
                count.added += layer.n - 1 - j
    return count


# ---------------------------------------------------------------- optimiser


class RMSprop:
    """Graves (2013), the lines of its Eqs. (38) to (41)."""

    def __init__(self, w, lr, decay=0.95, momentum=0.9, eps=1e-4):
        self.w, self.lr, self.decay, self.momentum, self.eps = f64(w), lr, decay, momentum, eps
        self.n = np.zeros_like(self.w)
        self.m = np.zeros_like(self.w)
        self.d = np.zeros_like(self.w)

    def step(self, g):
        self.n = self.decay * self.n + (1 - self.decay) * g**2
        self.m = self.decay * self.m + (1 - self.decay) * g
        self.d = self.momentum * self.d - self.lr * g / np.sqrt(np.maximum(self.n - self.m**2, 0) + self.eps)
        self.w = self.w + self.d
        return self.w
