"""Protocols of other services, so that their clients work unchanged; one file for each."""
