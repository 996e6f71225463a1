"""darn against ordinary implementations: `python -m benchmarks`; `python -m benchmarks.estimators`."""
