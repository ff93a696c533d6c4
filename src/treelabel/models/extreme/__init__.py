"""Very many labels: a tree over the labels, rankers in its clusters, and a beam that leaves most of them alone."""
