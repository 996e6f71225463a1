"""Reading, writing and downloading files, and keeping other processes out of a folder."""

from darn.files._lock import is_unused as is_unused
from darn.files._lock import locked as locked
from darn.files._lock import locked_file as locked_file
from darn.files._read import open_input as open_input
from darn.files._read import read_bytes as read_bytes
from darn.files._read import read_record as read_record
from darn.files._retrieve import retrieve as retrieve
from darn.files._write import RUN_FILES as RUN_FILES
from darn.files._write import atomic as atomic
from darn.files._write import cannot_write as cannot_write
from darn.files._write import check_suffix as check_suffix
from darn.files._write import check_target as check_target
from darn.files._write import open_output as open_output
