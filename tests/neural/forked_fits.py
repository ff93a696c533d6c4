"""Fits in processes of their own, which can be killed: forked from one that has imported all that they need."""

import multiprocessing
import os
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# What fits import when they need it, which takes far longer than small ones do.
import accelerate  # noqa: F401
import torch
import transformers.models.bert.modeling_bert  # noqa: F401

import treelabel.neural.featurizers
import treelabel.neural.model  # noqa: F401
from treelabel.models import make_model
from treelabel.models.check import CASES

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])


def fit_in_process(
    name: str, settings: dict[str, Any], output: Path, repeats: int = 1, kill_after: int | None = None
) -> list[int]:
    """Fit a model in a new process and save it.

    Parameters
    ----------
    name, settings
        Of the model.
    output
        The folder that it is saved in.
    repeats
        How often its documents are repeated.
    kill_after
        The step after which the process is killed, while the next one is under way.

    Returns
    -------
    list of int
        The steps that the process has told of, up to that one.
    """
    receiver, sender = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_fit, args=(sender, dict(os.environ), name, settings, output, repeats))
    process.start()
    sender.close()
    steps: list[int] = []
    # The pipe ends with the process.
    with receiver, suppress(EOFError):
        while kill_after is None or not steps or steps[-1] < kill_after:
            steps.append(receiver.recv())
        process.kill()
    process.join(timeout=300)
    assert process.exitcode == (0 if kill_after is None else -9)
    return steps


def _fit(steps: Connection, environment: dict[str, str], name: str, settings: dict[str, Any], *rest: Any) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    output, repeats = rest
    case = CASES["leaf"]
    model = make_model(name, **settings).set_params(callbacks=(lambda step, values: steps.send(step),))
    model.fit(repeats * case.texts, repeats * case.labels, hierarchy=case.hierarchy)
    model.save(output)
