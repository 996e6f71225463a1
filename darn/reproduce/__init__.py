"""The paper's tables, figure and claims beside ours, from one JSON a row under results/."""

from darn.reproduce._claims import claims as claims
from darn.reproduce._docs import document as document
from darn.reproduce._docs import documented as documented
from darn.reproduce._results import KEYS as KEYS
from darn.reproduce._results import QUICK_EVERY as QUICK_EVERY
from darn.reproduce._results import QUICK_SAMPLES as QUICK_SAMPLES
from darn.reproduce._results import quick_line as quick_line
from darn.reproduce._results import quick_of as quick_of
from darn.reproduce._results import read as read
from darn.reproduce._results import read_all as read_all
from darn.reproduce._tables import as_text as as_text
from darn.reproduce._tables import lines as lines
from darn.reproduce._tables import markdown as markdown
