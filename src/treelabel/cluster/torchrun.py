"""Neural models on a cluster: torchrun on every node of Ray, which together are one group of processes.

Ray only starts the processes, one task per node in a placement group; torchrun and accelerate do the rest, as without
Ray. Ray Train would make a second process group of its own around them.
"""

import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from treelabel.cluster.ray_engine import PATIENCE, alive_nodes, ray_session
from treelabel.core.child_python import child_python
from treelabel.core.errors import TreelabelError

# Lines of a process that failed, for the message.
LAST_LINES = 5


def free_address() -> tuple[str, int]:
    """Return the address of this node, and a port where nobody listens."""
    import ray

    host = ray.util.get_node_ip_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        return host, probe.getsockname()[1]


def launch(rank: int, nodes: int, processes: int, meeting: tuple[str, int], folder: str, arguments: list[str]) -> Any:
    """Run torchrun on this node: its exit status, and what it printed.

    Parameters
    ----------
    rank, nodes
        Which of how many nodes this is.
    processes
        How many processes it starts.
    meeting
        Where the processes of all nodes meet.
    folder
        The working folder, as all nodes see it.
    arguments
        Those of treelabel.

    Returns
    -------
    (int, str, str)
    """
    where = ["--master-addr", meeting[0], "--master-port", str(meeting[1])]
    group = ["--nnodes", str(nodes), "--node-rank", str(rank), "--nproc-per-node", str(processes), *where]
    command = child_python("-m", "torch.distributed.run", *group, "-m", "treelabel", *arguments)
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def torchrun_on_ray(address: str, arguments: Sequence[str]) -> str:
    """Run a command of treelabel under torchrun on all nodes: a process for each GPU, or one on nodes without any.

    Parameters
    ----------
    address
        As for `ray_session`.
    arguments
        Those of treelabel, such as ["fit", "train.csv", ...].

    Returns
    -------
    str
        What the first node printed.
    """
    with ray_session(address) as ray:
        from ray.util.placement_group import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        nodes = alive_nodes(ray)
        graphics = int(min(node["Resources"].get("GPU", 0) for node in nodes))
        bundle = {"CPU": 1.0, **({"GPU": float(graphics)} if graphics else {})}
        group = placement_group([bundle] * len(nodes), strategy="STRICT_SPREAD")
        try:
            if not group.wait(PATIENCE):
                raise TreelabelError(f"the {len(nodes)} nodes of the cluster have no CPU free in {PATIENCE:.0f} s")

            def on_node(function: Any, rank: int) -> Any:
                place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
                options = {"num_cpus": 1, "num_gpus": graphics, "max_retries": 0, "scheduling_strategy": place}
                return ray.remote(function).options(**options)

            meeting = ray.get(on_node(free_address, 0).remote())
            fixed = len(nodes), max(1, graphics), meeting, os.getcwd(), list(arguments)
            ended = ray.get([on_node(launch, rank).remote(rank, *fixed) for rank in range(len(nodes))])
        except ray.exceptions.RayError as error:
            raise TreelabelError(
                f"training ended with a worker or node: {' '.join(str(error).split())[:200]}; with --set "
                "checkpoint_dir=FOLDER, the same command goes on from where it was"
            ) from None
        finally:
            remove_placement_group(group)
    return _first_output(ended)


def _first_output(ended: list[tuple[int, str, str]]) -> str:
    """Return what the first node printed; a failure of any node is an error."""
    for rank, (code, _, errors) in enumerate(ended):
        if code:
            last = " | ".join(errors.strip().splitlines()[-LAST_LINES:])
            raise TreelabelError(f"torchrun ended with status {code} on node {rank}: {last}")
    return ended[0][1]
