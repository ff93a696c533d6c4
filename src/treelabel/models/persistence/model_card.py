"""The README.md of a model folder: a model card in Markdown, as Hugging Face's hub and people read it."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from treelabel.core.errors import printable, shorten
from treelabel.hierarchy.labelled_texts import Regime
from treelabel.rules.registry import describe_rule

MOST_NAMES = 20
FEW_DOCUMENTS = 10
_REGIMES: dict[Regime, str] = {
    "single_path": "each has one path of labels, which ends in a leaf",
    "partial_path": "each has one path of labels, which may end above the leaves",
    "multi_path": "each may have several paths of labels",
}
_HEADER = """---
library_name: treelabel
pipeline_tag: text-classification
tags:
- treelabel
- hierarchical-text-classification
---"""
_USE = """## Use

In Python, with FOLDER the folder of this file:

```python
import treelabel as tl

model = tl.load_model("FOLDER")
model.predict(["a text", "another text"])        # labels, by the rule above
model.predict_frame(frame)                       # a data frame with label, path and probability
model.score(["a text"])                          # the probability of every label
```

In a shell:

```sh
treelabel predict FOLDER texts.csv -o predictions.jsonl
treelabel evaluate FOLDER labelled.csv
```"""
_END = """## License

Whoever publishes the model says under which license; treelabel sets none, and knows none of the training data.

This file was written when the model was saved. model.json holds its checksum, and a model whose files were changed is
not loaded: put what you have to add into other files."""


def write_card(model: Any) -> str:
    """Describe a fitted model in Markdown: labels, training data, evidence, limits, use; but no text of a document.

    Parameters
    ----------
    model : Model
        Names of labels and of columns come from users, and are escaped.

    Returns
    -------
    str
    """
    h, name = model.hierarchy_, type(model).__name__
    title = f"# {name}: texts into {len(h):,} labels"
    what = (
        f"A model of [treelabel](https://github.com/treelabel/treelabel), which puts texts into a hierarchy of labels. "
        f"It is of the kind `{model.name}`, and gives every label a probability, from which a rule chooses."
    )
    sections = (_labels(model), _training(model), _evidence(model), _limits(model))
    return "\n\n".join([_HEADER, title, what, *sections, _USE, _END]) + "\n"


def escape_markdown(text: object) -> str:
    r"""Escape a value so that Markdown shows it as it is: no markup, no link, no HTML, on one line.

    >>> print(escape_markdown("<b> *a* [x](http://y)\n| www.z"))
    \<b\> \*a\* \[x\](http\://y) \| www\.z
    """
    line = printable(shorten(" ".join(str(text).split()), 200))
    line = re.sub(r"([\\`*_{}\[\]<>&|#~!$:@])", r"\\\1", line)
    return re.sub(r"(?i)\bwww\.", lambda match: f"{match[0][:-1]}\\.", line)


def describe_reading(reading: Mapping[str, Any]) -> list[str]:
    """Write the options by which training data were read, for people.

    >>> describe_reading({"text": ["title", "body"], "sep": "/"})
    ['text = title, body', 'sep = /']
    """
    return [
        f"{name} = {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for name, value in reading.items()
    ]


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _labels(model: Any) -> str:
    h = model.hierarchy_
    kind = "tree" if h.is_tree else "graph, in which a label may have several parents,"
    tops = [escape_markdown(name) for name in h.name_array[h.level(1)].to_pylist()] if len(h) else []
    more = f" and {len(tops) - MOST_NAMES:,} more" if len(tops) > MOST_NAMES else ""
    levels = ", ".join(f"{size:,}" for size in h.level_sizes)
    lines = [
        f"{len(h):,} labels, {len(h.leaves):,} of them leaves, in a {kind} of depth {h.max_depth}",
        f"Labels by level, from the top: {levels}",
        f"At the top: {', '.join(tops[:MOST_NAMES])}{more}",
        f"Fingerprint of the hierarchy: `{h.fingerprint}`",
    ]
    return f"## Labels\n\n{_list(lines)}"


def _training(model: Any) -> str:
    lines = [f"{model.profile_.documents:,} documents; {_REGIMES[model.regime_]}"]
    reading = [escape_markdown(option) for option in describe_reading(model.reading_)]
    lines.append(f"Read with {'; '.join(reading)}" if reading else "Passed in memory, not read from a file")
    changed = {name: value for name, value in model.changed_settings().items() if name not in model.unsaved}
    settings = [f"{escape_markdown(name)} = {escape_markdown(repr(value))}" for name, value in changed.items()]
    lines.append(f"Settings that are not the defaults: {'; '.join(settings)}" if settings else "Settings: the defaults")
    return f"## Training\n\n{_list(lines)}"


def _evidence(model: Any) -> str:
    described = model.evidence_.describe(model.rule_, model.regime_)
    lines = [escape_markdown(part[:1].upper() + part[1:]) for part in described.split("; ") if part]
    if model.evidence_.result_of(model.rule_) is None:
        lines.insert(0, "No documents were held out to judge it: judge it on labelled documents of your own")
    lines.append(f"It predicts {escape_markdown(describe_rule(model.rule_))}, if no other rule is asked for")
    return f"## Evidence\n\n{_list(lines)}"


def _limits(model: Any) -> str:
    h, counts = model.hierarchy_, model.profile_.frequencies
    leaves = counts[h.leaves]
    unseen, few = int(np.sum(leaves == 0)), int(np.sum((leaves > 0) & (leaves < FEW_DOCUMENTS)))
    lines = [
        "It knows no labels but these, and texts of other kinds, sources or languages than those of training get "
        "labels all the same; `treelabel drift` compares new texts with those of training",
        "What was measured holds for documents like those of training",
    ]
    if few:
        lines.append(
            f"Leaves with fewer than {FEW_DOCUMENTS} training documents, which are rarely predicted well: {few:,}"
        )
    if unseen:
        lines.append(f"Leaves without any training document: {unseen:,}")
    return f"## Limits\n\n{_list(lines)}"
