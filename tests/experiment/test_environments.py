"""Environments of commands: two runs that want the same one make it once."""

import threading
from pathlib import Path

import pytest

from treelabel.experiment import command_systems


def test_two_runs_make_an_environment_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_systems, "cache_folder", lambda: tmp_path)
    made: list[Path] = []
    monkeypatch.setattr(command_systems, "_install", lambda python, requirements: made.append(python))
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(command_systems.environment(("a-package",)))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == [made[0]] * 3
    assert found[0].exists()
