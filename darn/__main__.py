"""`python -m darn`, where the command is not on the path."""

import sys

from darn.cli import main

sys.exit(main())
