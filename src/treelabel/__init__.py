"""treelabel puts texts into a hierarchy of labels, and says honestly how good it is at it."""

__version__ = "0.1.0"
