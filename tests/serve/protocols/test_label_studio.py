import json
import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import Client

TREE = """<View><Text name="body" value="$content"/><Taxonomy name="topic" toName="body">
<Choice value="science"><Choice value="physics"/></Choice><Choice value="arts"><Choice value="music"/>
<Choice value="painting" alias="P"/></Choice><Choice value="sport"/></Taxonomy></View>"""
FLAT = """<View><Text name="body" value="$content"/><Choices name="topic" toName="body" choice="{choice}">
<Choice value="science"/><Choice value="music"/><Choice value="painting"/></Choices></View>"""
SONG, BOTH = "song choir violin and song", "song choir violin and canvas oil portrait"


def predict(client: TestClient, config: str, *texts: str) -> list[dict[str, Any]]:
    tasks = [{"id": number, "data": {"content": text}} for number, text in enumerate(texts)]
    body = {"tasks": tasks, "label_config": config, "project": "1.2", "params": {"login": None}}
    answer = client.post("/label-studio/topics/predict", json=body)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def region(value: Any, kind: str = "taxonomy") -> dict[str, Any]:
    return {"from_name": "topic", "to_name": "body", "type": kind, "value": {kind: value}}


def test_predictions_are_paths_under_the_names_of_the_project(client: TestClient) -> None:
    version = client.get("/v1/models/topics").json()["version"]
    one, two, none = predict(client, TREE, SONG, BOTH, " ")
    assert one["result"] == [region([["arts", "music"]])]
    assert 0 < one["score"] <= 1
    assert one["model_version"] == version
    [both] = two["result"]
    assert sorted(both["value"]["taxonomy"]) == [["arts", "P"], ["arts", "music"]]
    assert none == {"result": [], "score": None, "model_version": version}


def test_choices_are_one_or_several_names(client: TestClient) -> None:
    [several] = predict(client, FLAT.format(choice="multiple"), BOTH)
    [single] = predict(client, FLAT.format(choice="single"), BOTH)
    assert sorted(several["result"][0]["value"]["choices"]) == ["music", "painting"]
    assert single["result"][0]["value"]["choices"] == several["result"][0]["value"]["choices"][:1]
    [above] = predict(client, FLAT.format(choice="single"), "quark energy field and quark")
    assert above["result"] == [region(["science"], "choices")]


def test_more_tasks_than_a_request_may_have_are_predicted_in_turn(serve: Client) -> None:
    client = serve(max_documents=2)
    assert [each["result"] for each in predict(client, TREE, *[SONG] * 5)] == [[region([["arts", "music"]])]] * 5
    assert predict(client, TREE) == []


def test_a_project_is_connected_if_it_has_labels_of_the_model(client: TestClient) -> None:
    assert client.get("/label-studio/topics/health").json()["status"] == "UP"
    version = client.get("/v1/models/topics").json()["version"]

    def set_up(config: str) -> Any:
        body = {"project": "1.2", "schema": config, "hostname": "http://h", "access_token": "t", "extra_params": None}
        return client.post("/label-studio/topics/setup", json=body)

    for config in (TREE, FLAT.format(choice="single")):
        assert set_up(config).json() == {"model_version": version}
    other = TREE.replace("science", "x").replace("arts", "y").replace("sport", "z")
    assert set_up(other).status_code == 422
    assert "none of the labels" in set_up(other).json()["error"]
    assert client.get("/label-studio/topics/versions").json() == {"versions": [version]}
    assert client.get("/label-studio/none/health").status_code == 404


@pytest.mark.parametrize("data", [{}, {"text": "secret"}, {"content": 7}])
def test_a_task_without_its_text_is_refused(client: TestClient, data: dict[str, object]) -> None:
    body = {"tasks": [{"id": 12, "data": data}], "label_config": TREE}
    answer = client.post("/label-studio/topics/predict", json=body)
    assert answer.status_code == 422
    assert "task 12" in answer.json()["error"]
    assert "secret" not in answer.text


class Project:
    """A project whose events go to a service."""

    def __init__(self, client: TestClient, journal: Path, config: str = TREE) -> None:
        self.client, self.path, self.config = client, journal, config

    def send(self, action: str, *results: Any, **annotation: Any) -> tuple[int, Any]:
        """Send an event with one annotation, or with several in bulk."""
        project = {"id": 3, "label_config": self.config, "token": "hidden-token"}
        annotations = [{"id": n, "task": n, "result": result, **annotation} for n, result in enumerate(results)]
        tasks = [{"id": n, "data": {"content": f"text {n}"}} for n in range(len(results))]
        is_bulk = action == "ANNOTATIONS_CREATED"
        body: dict[str, Any] = {"action": action, "project": project}
        body |= {"annotation": annotations if is_bulk else annotations[0]} if results else {}
        body |= {"task": tasks if is_bulk else tasks[0]} if results else {}
        answer = self.client.post("/label-studio/topics/webhook", json=body)
        return answer.status_code, answer.json()

    @property
    def journal(self) -> list[Any]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(entry["id"], entry["text"], entry["labels"]) for entry in map(json.loads, lines)]


@pytest.fixture
def project(serve: Client, tmp_path: Path) -> Project:
    return Project(serve(learn=True), tmp_path / "state" / "topics" / "journal.jsonl")


def test_annotations_go_to_the_journal(project: Project) -> None:
    assert project.send("ANNOTATION_CREATED", [region([["arts", "music"], ["science"]])])[0] == 201
    assert project.send("ANNOTATION_UPDATED", [region([["arts", "P"]])])[0] == 201
    assert project.send("ANNOTATION_CREATED", [])[0] == 201
    status, answer = project.send("ANNOTATIONS_CREATED", [region([["science"]])], [region([["arts"]])])
    assert (status, answer) == (201, {"result": {"accepted": 2, "journal": 5}, "status": "ok"})
    first, second = "label-studio/3/0", "label-studio/3/1"
    assert project.journal == [
        (first, "text 0", ["arts > music", "science"]),
        (first, "text 0", ["arts > painting"]),
        (first, "text 0", []),
        (first, "text 0", ["science"]),
        (second, "text 1", ["arts"]),
    ]


@pytest.mark.parametrize("path", [["arts", "physics"], ["music"], ["sport"], ["arts", "music", "song"], "music"])
def test_wrong_paths_are_refused_and_nothing_is_stored(project: Project, path: Any) -> None:
    right = [region([["arts", "music"]])]
    for action, results in (
        ("ANNOTATION_CREATED", [[region([path])]]),
        ("ANNOTATIONS_CREATED", [right, [region([path])]]),
    ):
        status, answer = project.send(action, *results)
        assert status == 422
        assert "unknown" in answer["error"]
        assert "text 0" not in answer["error"]
    assert project.journal == []


def test_names_of_choices_may_be_anywhere_in_the_tree(project: Project) -> None:
    project.config = FLAT.format(choice="multiple")
    assert project.send("ANNOTATION_CREATED", [region(["music", "science"], "choices")])[0] == 201
    assert project.send("ANNOTATION_CREATED", [region(["sculpture"], "choices")])[0] == 422
    assert [labels for _, _, labels in project.journal] == [["arts > music", "science"]]


def test_what_says_nothing_of_labels_is_not_stored(project: Project) -> None:
    other = {"from_name": "stars", "to_name": "body", "type": "rating", "value": {"rating": 3}}
    assert project.send("ANNOTATION_CREATED", [region([["science"]])], was_cancelled=True)[0] == 201
    assert project.send("ANNOTATION_CREATED", [other])[0] == 201
    for action in ("ANNOTATIONS_DELETED", "ANNOTATION_DELETED", "TASKS_CREATED", "PROJECT_UPDATED", ""):
        assert project.send(action)[0] == 200
    assert project.journal == []


def test_a_button_begins_to_learn_once(project: Project) -> None:
    status, answer = project.send("START_TRAINING")
    [job] = project.client.get("/v1/jobs").json()["jobs"]
    assert (status, answer) == (201, {"result": {"job": job["id"]}, "status": "ok"})
    assert project.send("START_TRAINING")[0] == 409


@pytest.mark.parametrize("missing", ["annotation", "task", "project"])
def test_events_without_their_parts_are_refused(project: Project, missing: str) -> None:
    body = {
        "action": "ANNOTATION_CREATED",
        "annotation": {"result": [region([["science"]])]},
        "task": {"id": 1, "data": {"content": "secret"}},
        "project": {"id": 1, "label_config": TREE},
    }
    assert project.client.post("/label-studio/topics/webhook", json={**body}).status_code == 201
    body.pop(missing)
    answer = project.client.post("/label-studio/topics/webhook", json=body)
    assert answer.status_code == 422
    assert missing in answer.json()["error"]
    assert "secret" not in answer.text


def test_neither_tokens_nor_texts_are_logged(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    project.send("ANNOTATION_CREATED", [region([["science"]])])
    project.send("ANNOTATION_CREATED", [region([["nothing"]])])
    body = {"schema": TREE, "access_token": "hidden-token", "project": "1.2"}
    project.client.post("/label-studio/topics/setup", json=body)
    assert "hidden-token" not in caplog.text
    assert "text 0" not in caplog.text
    assert "hidden-token" not in project.path.read_text()


def test_events_need_learning_and_its_scope(serve: Client, client: TestClient, tmp_path: Path) -> None:
    assert Project(client, tmp_path / "none").send("ANNOTATION_CREATED", [region([["science"]])])[0] == 403
    tokens = tmp_path / "tokens"
    tokens.write_text(f"predict {'p' * 20}\n")
    closed = serve(learn=True, token_file=tokens)
    # The app sends user and password of a backend, but not with events: see docs/serve-label-studio.md.
    assert closed.get("/label-studio/topics/health", auth=("any", "p" * 20)).status_code == 200
    assert closed.get("/label-studio/topics/health").status_code == 401
    assert Project(closed, tmp_path / "none").send("ANNOTATION_CREATED", [region([["science"]])])[0] == 401
