"""Deterministic maps: weights, no probability."""

from darn.nn._activation import ACTIVATIONS as ACTIVATIONS
from darn.nn._activation import ReLU as ReLU
from darn.nn._activation import Sigmoid as Sigmoid
from darn.nn._activation import Tanh as Tanh
from darn.nn._activation import softplus as softplus
from darn.nn._base import AbstractCausalMap as AbstractCausalMap
from darn.nn._base import AbstractMap as AbstractMap
from darn.nn._base import Decide as Decide
from darn.nn._causal import CausalDense as CausalDense
from darn.nn._causal_local import CausalLocal as CausalLocal
from darn.nn._dense import Dense as Dense
from darn.nn._local import Grid as Grid
from darn.nn._local import Local as Local
from darn.nn._local import LocalTranspose as LocalTranspose
from darn.nn._net import Net as Net
from darn.nn._registry import REGISTRY as REGISTRY
from darn.nn._registry import register as register
from darn.nn._registry import tuning_field as tuning_field
