"""Lossless compression to the model's own description length, by bits-back coding with exact arithmetic."""

from darn.codec._bytes import MalformedError as MalformedError
from darn.codec._bytes import Reader as Reader
from darn.codec._bytes import pack as pack
from darn.codec._bytes import unpack as unpack
from darn.codec._bytes import varint as varint
from darn.codec._container import MAX_MODEL as MAX_MODEL
from darn.codec._container import read_head as read_head
from darn.codec._cost import rounding_cost as rounding_cost
from darn.codec._members import Member as Member
from darn.codec._members import read_members as read_members
from darn.codec._rows import Accounts as Accounts
from darn.codec._rows import RowCodec as RowCodec
from darn.codec._rows import check_block as check_block
from darn.codec._rows import compress as compress
from darn.codec._rows import decompress as decompress
from darn.codec._rows import inspect as inspect
from darn.codec._twin import twin as twin
