"""The command, and the service as a process of its own."""

import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.helpers import Run
from tests.serve.conftest import Client
from tests.serve.test_learning import wait_for
from treelabel.core.child_python import child_python
from treelabel.core.errors import TreelabelError
from treelabel.models.persistence.signing import REQUIRED, new_key, sign_model


def test_the_command_refuses_what_is_not_safe_or_not_there(run: Run, topics: Path, tmp_path: Path) -> None:
    public = run("serve", topics, "--host", "0.0.0.0")
    assert (public.code, "--token-file" in public.err) == (2, True)
    missing = run("serve", topics, "--pool", tmp_path / "none.csv")
    assert (missing.code, "no such file" in missing.err) == (2, True)
    nothing = run("serve", tmp_path, "--port", "0")
    assert (nothing.code, "no model folder" in nothing.err) == (2, True)


def test_models_of_one_name_are_refused(serve: Client, topics: Path, tmp_path: Path) -> None:
    shutil.copytree(topics, tmp_path / "topics")
    with pytest.raises(TreelabelError, match="two model folders are called 'topics'"):
        serve(topics, tmp_path / "topics")


def test_where_signatures_are_required_unsigned_folders_are_not_served(
    serve: Client, topics: Path, nouns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = new_key(tmp_path / "ours")
    monkeypatch.setenv(REQUIRED, str(public))
    with pytest.raises(TreelabelError, match="sign"):
        serve(topics)
    folder = tmp_path / "model"
    shutil.copytree(topics, folder)
    key = sign_model(folder, private)
    client = serve(folder, watch_seconds=0.02)
    assert client.get("/v1/models/model").json()["signature"] == key
    shutil.rmtree(folder)
    shutil.copytree(nouns, folder)
    wait_for(lambda: 'reloads_total{model="model",result="failed"}' in client.get("/metrics").text)
    assert client.get("/v1/models/model").json()["signature"] == key


@pytest.mark.slow
def test_no_request_is_dropped_while_a_folder_is_replaced_and_a_signal_ends_it(
    topics: Path, nouns: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(topics, folder)
    shutil.copytree(nouns, tmp_path / "other")
    command = child_python("-m", "treelabel", "serve", str(folder), "--port", "0", "--state", str(tmp_path / "state"))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = (json.loads(line) for line in process.stderr if line.startswith("{"))
            address = next(line["address"] for line in lines if "address" in line)
            # Nobody waits for the log to be read.
            reader = threading.Thread(target=process.stderr.read)
            reader.start()
            versions = {ask(address)}
            os.rename(folder, tmp_path / "old")
            os.rename(tmp_path / "other", folder)
            with ThreadPoolExecutor(4) as pool:
                while len(versions) == 1:
                    versions |= set(pool.map(ask, [address] * 20))
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) in (0, 143)
            reader.join()
        finally:
            process.kill()


def ask(address: str) -> str:
    """Predict a text, and return the version of the model that did."""
    request = urllib.request.Request(
        f"{address}/v1/models/model/predict", b'{"text": "a dog"}', {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        version: str = json.load(answer)["version"]
    return version
