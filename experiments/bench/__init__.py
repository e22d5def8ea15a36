"""How fast, and with how much memory: one harness, `python -m experiments.bench --help`."""
