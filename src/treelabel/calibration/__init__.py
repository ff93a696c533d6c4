"""From margins, cosines or logits to coherent probabilities of nodes."""
