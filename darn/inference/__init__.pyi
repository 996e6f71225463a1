from . import completion as completion
from . import conditional as conditional
from . import constrained as constrained
from . import likelihood as likelihood
from . import objective as objective
from . import sampling as sampling
from . import sparse as sparse
from . import summary as summary
