"""The commands of `darn`, a module a group: the arguments they take and what they do with them.

These modules are light, so that `darn --help` answers at once: heavy imports wait until a command runs.
"""

from darn.commands import _codec, _complete, _eval, _report, _sample, _tables, _train
from darn.commands._base import Commands as Commands

GROUPS = (_train, _eval, _sample, _complete, _report, _codec, _tables)  # in the order of `darn --help`
