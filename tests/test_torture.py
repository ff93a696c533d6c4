"""The torture benchmark still runs: a short form of it, and the good files that it damages."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus import _data, _taxonomies, use

TORTURE = Path(__file__).resolve().parents[1] / "benchmarks" / "torture.py"


@pytest.mark.skipif(sys.platform != "linux", reason="forks, and looks into /proc")
@pytest.mark.slow
def test_a_short_form_finds_nothing(tmp_path: Path) -> None:
    given = ["--only", "kills,writers", "--scenes", "split", "--kills", "1", "--writers", "2"]
    done = subprocess.run(
        [sys.executable, TORTURE, *given], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kills: " in done.stderr
    assert "clean" in done.stderr


@pytest.mark.filterwarnings("ignore")
def test_the_files_to_damage_can_be_made_and_read(tmp_path: Path) -> None:
    samples = [*_data(tmp_path), *_taxonomies(tmp_path)]
    assert len(samples) > 30
    for sample in samples:
        use(sample.kind, tmp_path / sample.name, tmp_path)
