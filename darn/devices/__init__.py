"""The devices that work is spread over, in one process or in several that run together.

Row by row work uses the devices of its own process; training uses those of all processes.
"""

from darn.devices._mesh import AXIS as AXIS
from darn.devices._mesh import ROWS as ROWS
from darn.devices._mesh import WHOLE as WHOLE
from darn.devices._mesh import Devices as Devices
from darn.devices._mesh import row_mesh as row_mesh
from darn.devices._mesh import size_of as size_of
from darn.devices._mesh import training_mesh as training_mesh
from darn.devices._mesh import use as use
from darn.devices._mesh import using as using
from darn.devices._mesh import weights_are_sharded as weights_are_sharded
from darn.devices._place import everywhere as everywhere
from darn.devices._place import host as host
from darn.devices._place import on_one as on_one
from darn.devices._place import placed as placed
from darn.devices._place import whole as whole
from darn.devices._processes import agreed as agreed
from darn.devices._processes import agreed_array as agreed_array
from darn.devices._processes import check_same as check_same
from darn.devices._processes import first as first
from darn.devices._processes import gathered as gathered
from darn.devices._processes import in_first as in_first
from darn.devices._processes import is_first as is_first
