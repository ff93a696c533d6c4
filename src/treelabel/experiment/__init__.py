"""Experiments: a TOML spec of data sets, systems, rules and metrics → runs over seeds → cached results → tables."""
