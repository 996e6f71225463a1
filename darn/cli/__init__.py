"""The command line, with one module for each group of commands.

These modules import little, so that `darn --help` is fast: heavy imports wait until a command runs.
"""

from darn.cli._main import main as main
