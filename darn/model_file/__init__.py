"""Model files: one safetensors file with the weights, the structure of the model, and its provenance.

Class names are looked up in `darn.nn.REGISTRY`, so that opening a file never runs code from it. Everything is checked
before the model is used: the checksum, the types and shapes that the classes declare, and, by tracing the model once
without computing anything, that its parts fit together.
"""

from darn.model_file._check import check as check
from darn.model_file._file import MAX_INFO as MAX_INFO
from darn.model_file._file import UNREADABLE as UNREADABLE
from darn.model_file._file import check_header as check_header
from darn.model_file._file import checksum as checksum
from darn.model_file._file import load_model as load_model
from darn.model_file._file import read_info as read_info
from darn.model_file._file import save_model as save_model
from darn.model_file._structure import Declared as Declared
from darn.model_file._structure import declared_arrays as declared_arrays
from darn.model_file._structure import describe as describe
from darn.model_file._structure import rebuild as rebuild
