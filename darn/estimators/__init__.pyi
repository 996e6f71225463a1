from ._darn import DARN as DARN
from ._table import TableDARN as TableDARN
