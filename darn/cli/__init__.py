"""The command line, a module a group of commands: the arguments they take and what they do with them.

These modules are light, so that `darn --help` answers at once: heavy imports wait until a command runs.
"""

from darn.cli._main import main as main
