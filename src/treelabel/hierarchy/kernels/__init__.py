"""Compiled loops of the hierarchy."""
