"""Looking at the hierarchy of a model: nodes with their children, and search."""

from treelabel.serve.model_store import ServedModel
from treelabel.serve.problems import ProblemError
from treelabel.serve.schemas import NodeAnswer, NodeSummary

ROOT = -1


def find_nodes(served: ServedModel, query: str, limit: int) -> list[NodeSummary]:
    """Search the labels of a model: see `SearchIndex.search`.

    Parameters
    ----------
    served
        A model.
    query, limit
        As for `SearchIndex.search`.

    Returns
    -------
    list of NodeSummary
    """
    return [node_summary(served, node) for node in served.search_index.search(query, limit)]


def node_summary(served: ServedModel, node: int) -> NodeSummary:
    """Describe a node in a list."""
    h = served.model.hierarchy_
    children = h.child_graph[0]
    name, path, uri, notation = served.labels.fixed(node)
    return {
        "node": node,
        "label": name,
        "path": path,
        "uri": uri,
        "notation": notation,
        "depth": int(h.depth[node]),
        "child_count": int(children[node + 2] - children[node + 1]),
        "training_documents": int(served.model.profile_.frequencies[node]),
    }


def describe_node(served: ServedModel, node: int, offset: int = 0, limit: int = 1_000) -> NodeAnswer:
    """Describe a node with its children.

    Parameters
    ----------
    served
        A model.
    node
        Its id; -1 is the root.
    offset, limit
        Which children: those from `offset` on, `limit` at most.

    Returns
    -------
    NodeAnswer
    """
    h = served.model.hierarchy_
    if not ROOT <= node < len(h):
        raise ProblemError(404, f"there is no node {node}; nodes are 0 to {len(h) - 1}, and root")
    ptr, idx = h.child_graph
    children = idx[ptr[node + 1] : ptr[node + 2]][offset : offset + limit].tolist()
    ancestors = () if node == ROOT else served.labels.ancestors(node)
    return {
        "node": None if node == ROOT else node_summary(served, node),
        "ancestors": [node_summary(served, upper) for upper in ancestors],
        "child_count": int(ptr[node + 2] - ptr[node + 1]),
        "descendant_count": len(h) if node == ROOT else int(h.subtree_sizes[node]) - 1,
        "children": [node_summary(served, child) for child in children],
    }
