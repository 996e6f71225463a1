"""Results for people: pictures and tables."""

from darn.report._sheet import sheet as sheet
from darn.report._sheet import square_shape as square_shape
from darn.report._write import ARCHIVES as ARCHIVES
from darn.report._write import PICTURES as PICTURES
from darn.report._write import TABLES as TABLES
from darn.report._write import check_output as check_output
from darn.report._write import write_arrays as write_arrays
from darn.report._write import write_rows as write_rows
from darn.report._write import write_table as write_table
from darn.report._write import write_words as write_words
