"""Making good use of the machine: threads, and bfloat16 where it is faster."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from treelabel.core.compute import thread_count

# Networks of fewer parameters are small.
SMALL = 1_000_000


def parameter_count(network: nn.Module) -> int:
    """Return the number of parameters of a network."""
    return sum(p.numel() for p in network.parameters())


@contextmanager
def threads_for(network: nn.Module) -> Iterator[None]:
    """Let torch use all threads, or one for a small network, which has too little work to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if parameter_count(network) < SMALL else thread_count())
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def preserve_state(network: nn.Module) -> Iterator[None]:
    """Let a network be tried: dropout uses up none of training's random numbers, and running statistics are kept."""
    statistics = [(buffer, buffer.clone()) for buffer in network.buffers()]
    with torch.random.fork_rng():
        yield
    with torch.no_grad():
        for buffer, before in statistics:
            buffer.copy_(before)


def supports_bf16(network: nn.Module) -> bool:
    """Return whether this machine computes in bfloat16 and the network is large enough to try it."""
    if parameter_count(network) < SMALL:
        return False
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def faster_in_bf16(network: nn.Module, batch: Sequence[Tensor]) -> bool:
    """Measure whether a training step is at least twice as fast in bfloat16: on many CPUs it is many times slower.

    A factor of two keeps noise from deciding, so that the same machine decides the same way every time.

    Parameters
    ----------
    network
        The network to train.
    batch
        Inputs of a few documents.

    Returns
    -------
    bool
        Whether bfloat16 is clearly faster.
    """

    def seconds(bf16: bool) -> float:
        start = time.perf_counter()
        with torch.autocast(batch[0].device.type, dtype=torch.bfloat16, enabled=bf16):
            loss = network(tuple(batch)).float().square().mean()
        loss.backward()
        network.zero_grad(set_to_none=True)
        return time.perf_counter() - start

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network.to(device)
    batch = [value.to(device) for value in batch]
    with preserve_state(network), threads_for(network):
        # The first use of a kernel sets it up, and does not count.
        plain = min(seconds(False) for _ in range(3))
        half = seconds(True)
        return half < 10 * plain and min(seconds(True) for _ in range(2)) < 0.5 * plain
