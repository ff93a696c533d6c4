"""Have the real clients of each protocol ask the service: `make test-clients`.

    python tools/check_clients.py --environments ~/.cache/treelabel-clients/ [annif_rest hugging_face ...]

Learns a model of the embedded sample, serves it on 127.0.0.1, and runs the programs in tools/clients, each in an
environment of its own, which is made where it is missing. `--record FOLDER` writes the requests of every client as
JSON, from which the tests in tests/serve/protocols send them again. The exit status is 1 where a client fails.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.recording_proxy import RecordingProxy  # noqa: E402

PROGRAMS = Path(__file__).with_name("clients")
SECONDS_TO_START = 120


@dataclass(frozen=True)
class Client:
    """The environment in which a client runs, and what is installed there."""

    environment: str
    packages: tuple[str, ...]


CLIENTS = {
    "annif_rest": Client("annif", ("annif==1.4.3", "annif-client==0.5.0")),
    "annif_ensemble": Client("annif", ("annif==1.4.3", "annif-client==0.5.0")),
    "label_studio_predictions": Client("ls", ("label-studio-sdk==2.1.2",)),
    "open_inference_triton": Client("triton", ("tritonclient[http]==2.73.*",)),
    "open_inference_kserve": Client("kserve", ("kserve==0.21.*",)),
    "hugging_face": Client("hf", ("huggingface_hub==2.4.*",)),
    # Takes 1 GB and minutes to install: only by its name.
    "label_studio_app": Client("ls-app", ("label-studio==1.23.2",)),
}
DEFAULT = [name for name in CLIENTS if name != "label_studio_app"]


def make_environment(folder: Path, packages: tuple[str, ...]) -> Path:
    """Make an environment with packages, unless it is there; return its Python."""
    python, stamp = folder / "bin" / "python", folder / "packages.txt"
    wanted = "\n".join(packages)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        # pip is of the Python that made this environment: environments need none.
        base = str(getattr(sys, "_base_executable", sys.executable))
        subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
        pip = [base, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--quiet"]
        subprocess.run([*pip, *packages], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def prepare(folder: Path) -> Path:
    """Learn the sample, and write its documents, and its vocabulary as SKOS; return the folder of the model."""
    from treelabel import load_sample, make_model, write, write_taxonomy

    sample = load_sample()
    write(sample, folder / "train.jsonl")
    write_taxonomy(sample.hierarchy, folder / "vocab.ttl")
    make_model("linear").fit(sample, progress=False).save(folder / "nouns")
    return folder / "nouns"


@contextmanager
def served(model: Path) -> Iterator[int]:
    """Serve a model until the end of the block; give its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "treelabel", "serve", str(model), "--port", str(port)]
    command += ["--learn", "--state", str(model.parent / "state"), "--train", str(model.parent / "train.jsonl")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with open(model.parent / "service.log", "w", encoding="utf-8") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/v2/health/ready", service)
        yield port
    finally:
        service.terminate()
        service.wait(30)


def _wait_until_ready(address: str, service: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end and service.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit("the service did not start")


def run_client(name: str, python: Path, address: str, folder: Path) -> str:
    """Run the program of a client; return what it printed, or raise AssertionError with why it failed."""
    (folder / name).mkdir()
    (folder / name / "vocab.ttl").write_bytes((folder / "vocab.ttl").read_bytes())
    command = [str(python), "-W", "ignore", str(PROGRAMS / f"{name}.py"), address]
    ended = subprocess.run(command, cwd=folder / name, capture_output=True, text=True)
    if ended.returncode != 0:
        raise AssertionError((ended.stderr or ended.stdout).strip()[-3000:])
    return ended.stdout.strip().splitlines()[-1]


def main() -> int:
    """Run the clients; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    home = Path.home() / ".cache" / "treelabel-clients"
    parser.add_argument("--environments", default=f"{home}/", help="prefix of the environments' folders")
    parser.add_argument("--record", type=Path, help="folder to write the requests of each client to")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as name, served(prepare(Path(name))) as port:
        proxy = RecordingProxy(port)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{port if arguments.record is None else proxy.server_port}"
        for client in arguments.clients or DEFAULT:
            place = Path(f"{arguments.environments}{CLIENTS[client].environment}")
            python = make_environment(place, CLIENTS[client].packages)
            try:
                print(f"{client}: passed ({run_client(client, python, address, Path(name))})", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{client}: FAILED: {error}", flush=True)
            if arguments.record is not None:
                proxy.save(arguments.record / f"{client}.json")
        proxy.shutdown()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
