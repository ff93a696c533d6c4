"""Models that torch trains, and what they are made of; nothing outside imports this package at module level."""
