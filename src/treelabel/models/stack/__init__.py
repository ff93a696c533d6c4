"""Several models, pooled."""
