"""darn against what one would write instead: `python -m benchmarks`; `python -m benchmarks.estimators`."""
