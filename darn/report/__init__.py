"""Reports for people: one self-contained HTML page on a run, or on several side by side."""

from darn.report._compare import compare as compare
from darn.report._page import page as page
