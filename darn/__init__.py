"""darn: Deep AutoRegressive Networks."""
