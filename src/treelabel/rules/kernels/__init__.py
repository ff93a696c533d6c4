"""Compiled loops of the decision rules."""
