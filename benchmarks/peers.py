"""Peers from the package registry that live in environments of their own, so that their needs do not become ours."""

import json
import os
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treelabel-bench"


class MissingPeerError(Exception):
    """A peer that cannot be installed here."""


def peer_python(package: str, imports: str = "", needs: Sequence[str] = (), alone: bool = False) -> Path:
    """Find or make the environment of a peer; give its Python.

    `imports` are the modules that must be there (by default the package), `needs` what is installed before it, and
    `alone` leaves out what the package itself asks for.
    """
    folder = CACHE / f"{package}-venv"
    python = folder / "bin" / "python"
    check = [str(python), "-c", f"import {imports or package}"]
    if python.exists() and subprocess.run(check, capture_output=True).returncode == 0:
        return python
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    try:
        venv.create(folder, clear=True, with_pip=True)
        if needs:
            subprocess.run([*pip, *needs], check=True, capture_output=True, text=True)
        own = [*pip, "--no-deps", package] if alone else [*pip, package, *needs]
        subprocess.run(own, check=True, capture_output=True, text=True)
        subprocess.run(check, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise MissingPeerError(f"{package} cannot be installed: {lines[-1] if lines else error}") from error
    return python


def run_peer(package: str, code: str, *arguments: Path) -> Any:
    """Run code in the environment of a peer; give what its last line of output says as JSON."""
    command = [str(peer_python(package)), "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])
