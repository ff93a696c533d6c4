from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import Client

TOPICS = "/v1/projects/topics"


def test_models_are_projects_and_their_hierarchies_vocabularies(client: TestClient) -> None:
    assert set(client.get("/v1/").json()) == {"title", "version"}
    projects = client.get("/v1/projects").json()["projects"]
    assert [each["project_id"] for each in projects] == ["nouns", "topics"]
    assert client.get("/v1/projects/topics").json() == projects[1]
    [_, vocab] = client.get("/v1/vocabs").json()["vocabs"]
    assert vocab == projects[1]["vocab"] == {"vocab_id": "topics", "languages": ["und"], "size": 6, "loaded": True}


def test_suggestions_have_the_identifiers_of_the_vocabulary(client: TestClient) -> None:
    answer = client.post(f"{TOPICS}/suggest", data={"text": "a song of the choir", "metadata_title": "x", "limit": 2})
    first, second = answer.json()["results"]
    assert (first["uri"], first["label"], first["notation"]) == ("http://example.org/music", "music", "N4")
    assert first["path"] == "arts > music"
    assert first["score"] > second["score"]


def test_a_label_without_a_uri_goes_by_its_path(client: TestClient) -> None:
    answer = client.post("/v1/projects/nouns/suggest", data={"text": "a bird that sings", "limit": 1})
    [hit] = answer.json()["results"]
    assert hit["uri"].removeprefix("urn:treelabel:").replace("%20", " ").split("/") == hit["path"].split(" > ")


def test_an_empty_text_has_no_suggestions(client: TestClient) -> None:
    assert client.post(f"{TOPICS}/suggest", data={"text": ""}).json() == {"results": []}


@pytest.mark.parametrize(("limit", "threshold", "count"), [(0, 0, 0), (3, 0, 3), (10, 1, 0), (2000, 0, 4)])
def test_limit_and_threshold_hold_for_a_text_and_for_a_batch(
    client: TestClient, limit: int, threshold: float, count: int
) -> None:
    asked = {"limit": limit, "threshold": threshold}
    single = client.post(f"{TOPICS}/suggest", data={"text": "a song", **asked}).json()["results"]
    body = {"documents": [{"text": "a song", "document_id": "d"}, {"text": ""}]}
    batch = client.post(f"{TOPICS}/suggest-batch", json=body, params=asked).json()
    assert len(single) == count
    assert batch == [{"document_id": "d", "results": single}, {"document_id": None, "results": []}]


@pytest.mark.parametrize(
    ("path", "request_body", "status"),
    [
        ("/v1/projects/none/suggest", {"data": {"text": "a"}}, 404),
        (f"{TOPICS}/suggest", {"data": {"limit": 3}}, 400),
        (f"{TOPICS}/suggest", {"data": {"text": "secret", "threshold": 2}}, 400),
        (f"{TOPICS}/suggest-batch", {"json": {"documents": [{"text": "secret"}] * 33}}, 400),
        (f"{TOPICS}/suggest-batch", {"json": {"documents": [{"text": 7}]}}, 400),
        (f"{TOPICS}/suggest-batch", {"content": b"{secret"}, 400),
        (f"{TOPICS}/learn", {"json": []}, 403),
        ("/v1/detect-language", {"json": {"text": "secret", "languages": ["en"]}}, 400),
    ],
)
def test_errors_are_problems_without_the_text(
    client: TestClient, path: str, request_body: dict[str, object], status: int
) -> None:
    answer = client.post(path, **request_body)  # type: ignore[arg-type]
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert "secret" not in answer.text


def test_documents_with_subjects_go_to_the_journal_or_none_does(serve: Client, tmp_path: Path) -> None:
    client = serve(learn=True)
    journal = tmp_path / "state" / "topics" / "journal.jsonl"

    def learn(name: str, *uris: str) -> int:
        document = {"text": "oil on wood", "subjects": [{"uri": uri} for uri in uris]}
        answer = client.post(f"/v1/projects/{name}/learn", json=[{"text": "no subjects"}, document])
        assert answer.status_code == 204 or "oil" not in answer.text
        return answer.status_code

    assert learn("topics", "http://example.org/painting", "<http://example.org/music>") == 204
    assert '"labels": ["arts > painting", "arts > music"]' in journal.read_text()
    assert learn("topics", "urn:treelabel:arts/painting") == 204
    assert learn("topics", "http://example.org/painting", "http://example.org/sculpture") == 400
    assert learn("topics", "urn:treelabel:science/painting") == 400
    assert len(journal.read_text().splitlines()) == 2


def test_learning_needs_a_token_of_its_scope(serve: Client, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"predict {'p' * 20}\nlearn {'l' * 20}\n")
    client = serve(learn=True, token_file=tokens)
    assert client.get("/v1/projects").status_code == 401
    # annif-client and Annif send what stands before the host of an address, as any client does.
    for name, status in (("p", 403), ("l", 204)):
        answer = client.post(f"{TOPICS}/learn", json=[{"text": "a", "subjects": []}], auth=("any", name * 20))
        assert answer.status_code == status
