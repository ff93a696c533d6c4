"""Word vectors, summed, and a linear layer trained with any loss of LOSSES."""
