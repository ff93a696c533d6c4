"""The systems of papers: one file a system, with its network, its loss, its model and what differs from the paper."""
