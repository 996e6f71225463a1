"""Distributions over a binary vector given a context: the one idea behind p(H), p(X|H) and q(H|X)."""

from darn.layers._base import AbstractBinaryLayer as AbstractBinaryLayer
from darn.layers._base import Linear as Linear
from darn.layers._base import bias_field as bias_field
from darn.layers._context import context_field as context_field
from darn.layers._context import context_map as context_map
from darn.layers._context import plus_context as plus_context
from darn.layers._conv import CausalConv as CausalConv
from darn.layers._eonade import EoNADE as EoNADE
from darn.layers._factorial import Factorial as Factorial
from darn.layers._groups import Group as Group
from darn.layers._groups import Groups as Groups
from darn.layers._linear import LinearAutoregressive as LinearAutoregressive
from darn.layers._mixture import Mixture as Mixture
from darn.layers._nade import NADE as NADE
from darn.layers._numbers import Numbers as Numbers
from darn.layers._numbers import Word as Word
from darn.layers._orders import AbstractReorderable as AbstractReorderable
from darn.layers._orders import Orders as Orders
from darn.layers._orders import symmetries as symmetries
