"""Binary data: the published sets by name, and the user's own tables, arrays and images by path."""

from darn.data._atari import GAMES as GAMES
from darn.data._cells import Columns as Columns
from darn.data._cells import read_words as read_words
from darn.data._load import describe as describe
from darn.data._load import load as load
from darn.data._load import load_rows as load_rows
from darn.data._load import names as names
from darn.data._nearest import nearest as nearest
from darn.data._record import record_atari as record_atari
from darn.data._rows import Rows as Rows
from darn.data._rows import Splits as Splits
from darn.data._schema import MISSING as MISSING
from darn.data._schema import Schema as Schema
from darn.data._sheet import sheet as sheet
from darn.data._sheet import square_shape as square_shape
from darn.data._store import data_dir as data_dir
from darn.data._write import ARCHIVES as ARCHIVES
from darn.data._write import PAGES as PAGES
from darn.data._write import PICTURES as PICTURES
from darn.data._write import TABLES as TABLES
from darn.data._write import check_output as check_output
from darn.data._write import write_arrays as write_arrays
from darn.data._write import write_rows as write_rows
from darn.data._write import write_table as write_table
from darn.data._write import write_words as write_words
