"""Run a command of Python on whichever node of Ray has room: `python -m treelabel.cluster.remote_command ...`.

It stands for the command: its output is that of the command, its exit status too, and if it is killed, Ray ends the
command. So whatever starts and watches processes can have them run elsewhere.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from treelabel.cluster.ray_engine import WORKER_MEMORY, alive_nodes, ray_session, run_remotely
from treelabel.core.child_python import child_python
from treelabel.core.errors import TreelabelError

# The exit status where the cluster, and not the command, failed.
NOT_RUN = 2


def launcher(address: str, threads: int = 1) -> list[str]:
    """Return the beginning of a command line that runs what follows, arguments of Python, on a cluster."""
    return child_python("-m", "treelabel.cluster.remote_command", address, str(threads))


def cluster_cpus(address: str) -> int:
    """Return the CPUs of a cluster."""
    with ray_session(address) as ray:
        return int(sum(node["Resources"].get("CPU", 0) for node in alive_nodes(ray)))


def run_python(arguments: Sequence[str], folder: str) -> tuple[int, bytes]:
    """Run Python in a folder: its exit status, and its output.

    Its standard input stays open, and ends with this process, which tells the command to end too.
    """
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            child_python(*arguments), cwd=folder, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        code = process.wait()
        output.seek(0)
        return code, output.read()


def main(arguments: Sequence[str]) -> int:
    """Run `ADDRESS THREADS ARGUMENTS...`; return the exit status."""
    address, threads, *command = arguments
    try:
        with ray_session(address, int(threads)) as ray:
            for code, output in run_remotely(ray, run_python, [(command, os.getcwd())], int(threads), WORKER_MEMORY):
                sys.stdout.buffer.write(output)
                return int(code)
    except TreelabelError as error:
        sys.stderr.write(f"{error}\n")
    return NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
