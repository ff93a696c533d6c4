"""Text to dense matrix: pretrained encoders, how to find them, and the cache of what they compute."""
