"""How close synthetic rows are to real ones, and to the rows they were learned from: two tables in, figures out."""

from darn.fidelity._closeness import Association as Association
from darn.fidelity._closeness import Marginal as Marginal
from darn.fidelity._closeness import associations as associations
from darn.fidelity._closeness import marginals as marginals
from darn.fidelity._columns import FEWEST as FEWEST
from darn.fidelity._columns import Columns as Columns
from darn.fidelity._columns import align as align
from darn.fidelity._evaluate import Fidelity as Fidelity
from darn.fidelity._evaluate import evaluate as evaluate
from darn.fidelity._privacy import Privacy as Privacy
from darn.fidelity._privacy import privacy as privacy
from darn.fidelity._tasks import Utility as Utility
from darn.fidelity._tasks import two_sample_auc as two_sample_auc
from darn.fidelity._tasks import utility as utility
