"""Results for people: pictures and tables."""

from darn.report._compare import compare as compare
from darn.report._frames import beside_nearest as beside_nearest
from darn.report._frames import by_depth as by_depth
from darn.report._frames import compose as compose
from darn.report._frames import representation as representation
from darn.report._page import page as page
