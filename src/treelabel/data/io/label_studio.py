"""Label Studio's JSON: tasks with annotations (read), and with annotations or predictions (written).

Regions of the tags Taxonomy (paths from the top) and Choices (names) are labels. A project that reads what is written
here has the configuration that `label_config` returns.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pyarrow as pa

from treelabel.core.errors import quote
from treelabel.data.io.format import Head, ReadOptions, TableSource, WriteOptions
from treelabel.data.io.jsonlines import DocumentRow, ObjectEncoder, read_objects, write_array
from treelabel.hierarchy.hierarchy import Hierarchy

LOG = logging.getLogger(__name__)
CONTROL = "labels"
KINDS = ("taxonomy", "choices")


def is_label_studio(head: Head) -> bool:
    """Return whether a file begins with a task: data, and annotations or predictions."""
    values = head.values or {}
    is_task = isinstance(values.get("data"), dict) and any(
        isinstance(values.get(name), list) for name in ("annotations", "predictions", "completions")
    )
    # The smaller export has the annotation's fields beside the data.
    return is_task or {"annotation_id", "annotator"} <= values.keys()


def read_label_studio(path: Path, options: ReadOptions) -> TableSource:
    """Read tasks; a column for each field of the data, and for each control of the annotations.

    `labels` are those of the first control that occurs. Of several annotations of a task, the ground truth goes before
    others, then the newest; those that were cancelled are passed over, and so are predictions.
    """
    return read_objects(path, options, _TaskRows(path).convert)


class _TaskRows:
    """Makes rows of tasks, and says once what had to be chosen."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._control: str | None = None

    def convert(self, task: dict[str, Any]) -> dict[str, Any]:
        data = task.get("data")
        if data is None and "annotation_id" in task:
            return self._smaller(task)
        if not isinstance(data, dict):
            raise ValueError(f'expected a task with "data", an object, found {quote(data)}')
        row = dict(data)
        if "id" not in row and task.get("id") is not None:
            row["id"] = task["id"]
        labels: dict[str, list[Any]] = {}
        for region in self._regions(task):
            kind = region.get("type")
            if kind in KINDS:
                value = region.get("value")
                listed = value.get(kind) if isinstance(value, dict) else None
                labels.setdefault(str(region.get("from_name")), []).extend(_labels(listed, kind))
        return row | self._chosen(labels)

    def _smaller(self, task: dict[str, Any]) -> dict[str, Any]:
        """Make a row of a task in the smaller export, JSON_MIN."""
        row, labels = dict[str, Any](), dict[str, list[Any]]()
        for name, value in task.items():
            items = value if isinstance(value, list) else [value]
            is_control = items and all(isinstance(each, dict) and KINDS & each.keys() for each in items)
            if not is_control:
                row[name] = value
                continue
            for each in items:
                kind = next(kind for kind in KINDS if kind in each)
                labels.setdefault(name, []).extend(_labels(each[kind], kind))
        return row | self._chosen(labels)

    def _chosen(self, labels: dict[str, list[Any]]) -> dict[str, Any]:
        """Return a column for each control, and `labels` for the first one of the file."""
        if self._control is None and labels:
            self._control = next(iter(labels))
        others = sorted(labels.keys() - {self._control})
        if others:
            LOG.info("%s: labels are those of %s, not of %s (--labels)", self._path, self._control, ", ".join(others))
        further = {name: values for name, values in labels.items() if name != CONTROL and name in others}
        return further | {CONTROL: labels.get(self._control or "", [])}

    def _regions(self, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
        listed = task.get("annotations", task.get("completions")) or []
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise ValueError(f'expected "annotations" as a list of objects, found {quote(listed)}')
        annotations = [each for each in listed if not each.get("was_cancelled")]
        if len(annotations) > 1:
            LOG.info("%s: of several annotations of a task, the newest is taken, or the ground truth", self._path)
        if not annotations:
            if task.get("predictions"):
                LOG.info("%s: predictions are no labels; tasks without an annotation have none", self._path)
            return iter(())
        newest = max(
            enumerate(annotations),
            key=lambda pair: (bool(pair[1].get("ground_truth")), str(pair[1].get("updated_at", "")), pair[0]),
        )[1]
        result = newest.get("result", [])
        if not isinstance(result, list) or not all(isinstance(each, dict) for each in result):
            raise ValueError(f'expected "result" as a list of regions, found {quote(result)}')
        return iter(result)


def _labels(listed: Any, kind: str) -> list[Any]:
    """Check the labels of a region: paths of names, or names."""
    items = [listed] if isinstance(listed, str) else listed
    is_right = isinstance(items, list) and all(
        isinstance(each, str) or (isinstance(each, list) and each and all(isinstance(name, str) for name in each))
        for each in items
    )
    if not is_right:
        raise ValueError(f"expected {kind} as a list of names or paths, found {quote(listed)}")
    return [[each] if isinstance(each, str) else each for each in items]


class LabelStudioEncoder(ObjectEncoder):
    """Writes tasks, with the labels as an annotation, or as a prediction where somebody suggests them."""

    def make_object(self, document: DocumentRow) -> dict[str, Any]:
        """Return the task of a document."""
        h = self.options.hierarchy
        kind = "choices" if h is not None and h.max_depth <= 1 else "taxonomy"
        values = [path[-1] for path in document.labels] if kind == "choices" else document.labels
        region = {"from_name": CONTROL, "to_name": "text", "type": kind, "value": {kind: values}}
        result: dict[str, Any] = {"result": [region] if values else []}
        task = {"data": {"text": document.text, "id": document.id, **document.extra}}
        if self.options.agent is None:
            return {**task, "annotations": [result]}
        score = {"score": document.scores[0]} if document.scores else {}
        return {**task, "predictions": [{"model_version": self.options.agent, **score, **result}]}


def write_label_studio(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write an array of tasks."""
    write_array(path, tables, LabelStudioEncoder(options))


def label_config(hierarchy: Hierarchy) -> str:
    """Write the labelling configuration of a project: a tree for Taxonomy, one level for Choices.

    >>> print(label_config(Hierarchy.from_paths(["A > B"])))
    <View>
      <Text name="text" value="$text"/>
      <Taxonomy name="labels" toName="text">
        <Choice value="A">
          <Choice value="B"/>
        </Choice>
      </Taxonomy>
    </View>
    """
    # Asking for the parents refuses a DAG.
    _ = hierarchy.parent
    tag, several = ("Choices", ' choice="multiple"') if hierarchy.max_depth <= 1 else ("Taxonomy", "")
    lines = ["<View>", '  <Text name="text" value="$text"/>', f'  <{tag} name="{CONTROL}" toName="text"{several}>']
    ptr, children = hierarchy.child_graph
    stack: list[tuple[int, bool]] = [(int(node), False) for node in children[: ptr[1]][::-1]]
    while stack:
        node, is_end = stack.pop()
        indent = "  " * (1 + int(hierarchy.depth[node]))
        below = children[ptr[node + 1] : ptr[node + 2]][::-1]
        if is_end:
            lines.append(f"{indent}</Choice>")
            continue
        lines.append(f"{indent}<Choice value={quoteattr(hierarchy.names[node])}{'>' if len(below) else '/>'}")
        if len(below):
            stack.append((node, True))
            stack += [(int(child), False) for child in below]
    return "\n".join([*lines, f"  </{tag}>", "</View>"])
