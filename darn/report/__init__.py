"""Reports for people: one self-contained HTML page on a run, on several side by side, or on synthetic rows."""

from darn.report._compare import compare as compare
from darn.report._fidelity import fidelity_page as fidelity_page
from darn.report._page import page as page
