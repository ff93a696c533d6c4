"""A stack over a tuned encoder as ONNX graphs: the same numbers learned, other runtimes of its encoders."""

from copy import copy
from typing import Any, Literal

from treelabel.encoders.registry import encoder_note


def export_tuned(stack: Any, runtime: Literal["onnx", "int8"]) -> Any:
    """Return a `Stack` whose encoders run as graphs; see `Stack.export`."""
    before = stack.tuned_
    tuned = before.export(runtime)
    notes = {each.fingerprint: encoder_note(new) for each, new in ((before, tuned), (before.base, tuned.base))}
    values, arrays = stack._state()
    estimators = [_with_encoder(learned, notes) for learned in values["estimators"]]
    made = copy(stack)
    made.encoder = tuned.base.name
    made._restore({**values, "estimators": estimators, "tuned": tuned.note()}, arrays)
    made.tuned_.weights, made.tuned_.stored_graph = tuned.weights, tuned.stored_graph
    made.tuning_, made.stages_ = stack.tuning_, stack.stages_
    return made


def _with_encoder(learned: dict[str, Any], notes: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return what an estimator has learned, with the record of the encoder that takes the place of its own."""
    note = learned.get("encoder")
    return learned if note is None else {**learned, "encoder": notes.get(note["fingerprint"], note)}
