"""Results for people: pictures and tables."""

from darn.report._sheet import sheet as sheet
from darn.report._sheet import square_shape as square_shape
