"""Put a service into an ensemble of Annif by its http backend: `annif_ensemble.py ADDRESS`, with vocab.ttl here."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

TEXT = "a small bird that sings at night"
PROJECTS = """
[service]
name=treelabel
language=en
backend=http
vocab=nouns
endpoint={address}/v1/projects/nouns/suggest
limit=20

[both]
name=Ensemble
language=en
backend=ensemble
sources=service:2,dummy
vocab=nouns

[dummy]
name=Dummy
language=en
backend=dummy
vocab=nouns
"""


def run(*arguments: str, text: str = "") -> str:
    """Run a command of Annif; what it warns of is an error."""
    command = [str(Path(sys.executable).with_name("annif")), *arguments]
    ended = subprocess.run(command, input=text, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "warning" not in ended.stderr.lower(), ended.stderr
    return ended.stdout


os.environ["ANNIF_CONFIG"] = "annif.default_config.Config"
Path("projects.cfg").write_text(PROJECTS.format(address=sys.argv[1]), encoding="utf-8")
run("load-vocab", "nouns", "vocab.ttl")
listed = next(line for line in run("list-projects").splitlines() if line.startswith("service"))
assert " True " in listed, listed
alone, both = (run("suggest", name, text=TEXT).splitlines() for name in ("service", "both"))
assert alone, "the backend took none of the suggestions"
best = alone[0].split("\t")
assert best[0].startswith("<urn:treelabel:"), best
assert any(line.startswith(f"{best[0]}\t{best[1]}\t") for line in both), (best, both)
print("annif", version("annif"))
