import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import Client

PAINTINGS = [f"quark violin {word}" for word in ("of a tree", "in red", "by hand", "on paper", "again", "at night")]


def correct(client: TestClient, model: str, labels: list[Any] | None = None) -> None:
    corrections = [{"text": text, "labels": labels or ["painting"]} for text in PAINTINGS]
    assert client.post(f"/v1/models/{model}/feedback", json={"corrections": corrections}).status_code == 200


def learn(client: TestClient, model: str) -> dict[str, Any]:
    started = client.post(f"/v1/models/{model}/learn")
    assert started.status_code == 202, started.text
    for _ in range(600):
        job: dict[str, Any] = client.get(f"/v1/jobs/{started.json()['id']}").json()
        if job["status"] != "running":
            return job
        time.sleep(0.1)
    raise AssertionError("the job did not end")


def labels(client: TestClient, model: str, text: str) -> list[str]:
    [document] = client.post(f"/v1/models/{model}/predict", json={"text": text}).json()["documents"]
    return [label["label"] for label in document["labels"]]


@pytest.mark.slow
def test_a_model_that_grows_learns_is_promoted_and_rolled_back(serve: Client, topics: Path) -> None:
    client = serve(topics.with_name("memories"), learn=True)
    before = client.get("/v1/models/memories").json()["version"]
    assert labels(client, "memories", "quark violin") != ["painting"]
    assert client.post("/v1/models/memories/promote", json={}).status_code == 409
    correct(client, "memories")
    job = learn(client, "memories")
    assert job["status"] == "done", job
    again = learn(client, "memories")
    assert (again["status"], again["version"]) == ("done", job["version"]), again
    # Nothing changes before the version is promoted.
    assert client.get("/v1/models/memories").json()["version"] == before
    promoted = client.post("/v1/models/memories/promote", json={})
    assert promoted.json() == {"model": "memories", "version": job["version"]}
    assert labels(client, "memories", "quark violin") == ["painting"]
    # The corrections are known now, so there is nothing more to learn.
    assert "no corrections" in learn(client, "memories")["error"]
    assert client.post("/v1/models/memories/rollback").json()["version"] == before
    assert client.post("/v1/models/memories/rollback").status_code == 409
    assert client.post("/v1/models/memories/promote", json={"version": "../../etc"}).status_code == 404


@pytest.mark.slow
def test_other_models_learn_from_training_data_and_journal_and_must_pass(serve: Client, topics: Path) -> None:
    train = topics.with_name("train.jsonl")
    client = serve(learn=True, train=train, evaluation=train)
    assert "painting" not in labels(client, "topics", "quark violin")
    correct(client, "topics")
    job = learn(client, "topics")
    assert job["status"] == "done", job
    assert job["passed"] is True
    assert job["evaluation"]["documents"] == 80
    assert client.post("/v1/models/topics/promote", json={"version": job["version"]}).status_code == 200
    assert "painting" in labels(client, "topics", "quark violin")
    # The same version again was compared with another one than is current now.
    assert client.post("/v1/models/topics/promote", json={"version": job["version"]}).status_code == 409


@pytest.mark.slow
def test_a_worse_version_is_not_promoted(serve: Client, topics: Path) -> None:
    train = topics.with_name("train.jsonl")
    client = serve(topics.with_name("memories"), learn=True, evaluation=train)
    texts = [json.loads(line)["text"] for line in train.read_text(encoding="utf-8").splitlines()]
    wrong = [{"text": text, "labels": ["painting"]} for text in texts]
    client.post("/v1/models/memories/feedback", json={"corrections": wrong})
    job = learn(client, "memories")
    assert job["passed"] is False, job
    refused = client.post("/v1/models/memories/promote", json={"version": job["version"]})
    assert refused.status_code == 409
    assert "worse" in refused.json()["detail"]


@pytest.mark.slow
def test_without_training_data_the_job_says_what_is_missing(serve: Client) -> None:
    client = serve(learn=True)
    correct(client, "topics")
    job = learn(client, "topics")
    assert job["status"] == "failed"
    assert "--train" in job["error"]
    assert client.get("/v1/jobs").json()["jobs"] == [job]
    assert client.get("/v1/jobs/none").status_code == 404


@pytest.mark.slow
def test_a_promoted_version_is_served_again_after_a_restart(serve: Client, topics: Path) -> None:
    first = serve(topics.with_name("memories"), learn=True)
    correct(first, "memories")
    version = learn(first, "memories")["version"]
    # Without a body, the newest one.
    assert first.post("/v1/models/memories/promote").json()["version"] == version
    first.__exit__(None, None, None)
    assert serve(topics.with_name("memories"), learn=True).get("/v1/models/memories").json()["version"] == version


def test_a_folder_that_is_replaced_is_loaded_and_a_damaged_one_is_not(
    serve: Client, topics: Path, nouns: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(topics, folder)
    client = serve(folder, watch_seconds=0.02)
    shutil.copytree(nouns, tmp_path / "other")
    os.rename(folder, tmp_path / "old")
    os.rename(tmp_path / "other", folder)
    wait_for(lambda: client.get("/v1/models/model").json()["labels"] > 100)
    (folder / "model.json").write_text("{}", encoding="utf-8")
    wait_for(lambda: 'reloads_total{model="model",result="failed"}' in client.get("/metrics").text)
    assert client.get("/v1/models/model").json()["labels"] > 100


def wait_for(condition: Any) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def test_the_most_useful_texts_come_first_and_corrected_ones_are_gone(
    serve: Client, topics: Path, tmp_path: Path
) -> None:
    pool = tmp_path / "pool.lines.txt"
    easy, hard = "song choir violin", "something else altogether"
    pool.write_text(f"{easy}\n{hard}\n", encoding="utf-8")
    client = serve(topics, learn=True, pool=pool)
    answer = client.get("/v1/models/topics/review")
    assert answer.status_code == 200, answer.text
    queue = answer.json()
    assert [each["text"] for each in queue["texts"]] == [hard, easy]
    assert queue["remaining"] == 2
    client.post("/v1/models/topics/feedback", json={"corrections": [{"text": hard, "labels": []}]})
    assert [each["text"] for each in client.get("/v1/models/topics/review").json()["texts"]] == [easy]
    posted = client.post("/v1/models/topics/review", json={"texts": [easy, hard], "limit": 1}).json()
    assert [each["text"] for each in posted["texts"]] == [hard]
    assert serve(topics).get("/v1/models/topics/review").status_code == 409
