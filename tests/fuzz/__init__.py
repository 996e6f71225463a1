"""Damaged and forged files by the thousand: `make fuzz`, and in a short form among the tests.

A target (`targets.py`) makes valid files, damages them with the mutators (`mutate.py`) and opens them as a user would;
the driver (`drive.py`) counts what happened, in one process: tracebacks, silent changes, memory and time.
"""
