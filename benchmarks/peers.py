"""Peers from the package registry that live in environments of their own, so that their needs do not become ours."""

import json
import os
import subprocess
import venv
from pathlib import Path
from typing import Any

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treelabel-bench"


class MissingPeerError(Exception):
    """A peer that cannot be installed here."""


def peer_python(package: str) -> Path:
    """Find or make the environment of a peer; give its Python."""
    folder = CACHE / f"{package}-venv"
    python = folder / "bin" / "python"
    if python.exists():
        tried = subprocess.run([str(python), "-c", f"import {package}"], capture_output=True)
        if tried.returncode == 0:
            return python
    try:
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", package]
        subprocess.run(pip, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise MissingPeerError(f"{package} cannot be installed: {lines[-1] if lines else error}") from error
    return python


def run_peer(package: str, code: str, *arguments: Path) -> Any:
    """Run code in the environment of a peer; give what its last line of output says as JSON."""
    command = [str(peer_python(package)), "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])
