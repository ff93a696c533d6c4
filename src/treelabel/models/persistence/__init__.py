"""Model folders: how they are written, read, verified and signed."""
