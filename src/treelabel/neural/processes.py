"""Several processes that train one network (torchrun, accelerate): what steers training is decided once for all.

Clocks differ between processes, and so do measured times, files of other machines and statistics of own batches. A
process that went on, or went another way, would wait forever for the others' gradients.
"""

import atexit
from functools import cache
from typing import TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedDataParallelKwargs, broadcast_object_list
from torch import nn

from treelabel.core.stopping import StopReason, StopSignal

T = TypeVar("T")


def new_accelerator(has_unused: bool) -> Accelerator:
    """Return what places a network on a device and averages its gradients over processes.

    With `has_unused`, every step looks for parameters that have no gradient, which would be waited for otherwise.
    """
    unused = DistributedDataParallelKwargs(find_unused_parameters=has_unused)
    return Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[unused])


@cache
def _leave_group_at_exit() -> None:
    """Leave the group of processes before Python ends.

    Its threads release tensors of Python, for which they wait for the interpreter. One that still waits when Python
    ends is unwound through code that must not be: the process aborts, although all its work is done.
    """
    atexit.register(_leave_group)


def _leave_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def process_count() -> int:
    """Return how many processes train together; the first call makes them a group."""
    count = int(PartialState(cpu=not torch.cuda.is_available()).num_processes)
    if count > 1:
        _leave_group_at_exit()
    return count


def from_first_process(value: T) -> T:
    """Return the value of the first process in all of them; all have to call it."""
    if process_count() == 1:
        return value
    shared: T = broadcast_object_list([value])[0]
    return shared


def agree_to_stop(stop: StopSignal) -> bool:
    """Return whether to end early: by the clock of the first process, or as any process was asked to.

    The reason is the same in all processes afterwards; all have to call it.
    """
    if process_count() == 1:
        return bool(stop)
    reasons: list[StopReason | None] = [None] * process_count()
    torch.distributed.all_gather_object(reasons, stop.reason if stop else None)
    stop.reason = "interrupt" if "interrupt" in reasons else reasons[0]
    return stop.reason is not None


def share_statistics(network: nn.Module) -> None:
    """Share the running statistics of the first process: those of batch normalisation are each one's own."""
    if process_count() > 1:
        for buffer in network.buffers():
            torch.distributed.broadcast(buffer, 0)
