"""Send what the OpenAPI description of a service allows, and what it does not: `openapi_fuzzer.py ADDRESS`.

No answer may be of the server's fault, of a status or a form that is not described, or accept what is described as
wrong. What a description cannot say (a label must be in the taxonomy) may be refused.
"""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

CONFIG = """[parameters]
"path.model_id" = "nouns"
"path.project_id" = "nouns"
"path.model_name" = "nouns"
"""
Path("schemathesis.toml").write_text(CONFIG, encoding="utf-8")
program = str(Path(sys.executable).with_name("schemathesis"))
options = ["--max-examples", "30", "--phases", "coverage,fuzzing", "--exclude-checks", "positive_data_acceptance"]
command = [program, "--config-file", "schemathesis.toml", "run", f"{sys.argv[1]}/openapi.json", *options]
ended = subprocess.run(command, capture_output=True, text=True)
assert ended.returncode == 0, ended.stdout[ended.stdout.find("== FAILURES ==") :]
print("schemathesis", version("schemathesis"))
