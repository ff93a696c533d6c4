from starlette.testclient import TestClient


def test_models_are_listed_and_described(client: TestClient) -> None:
    listed = client.get("/v1/models").json()["models"]
    assert [each["id"] for each in listed] == ["nouns", "topics"]
    described = client.get("/v1/models/topics").json()
    assert described["labels"] == 6
    assert described["level_sizes"] == [2, 4]
    assert described["training_documents"] == 80


def test_a_text_is_predicted_with_the_probability_of_every_ancestor(client: TestClient) -> None:
    answer = client.post("/v1/models/topics/predict", json={"text": "a song of the choir"})
    assert answer.status_code == 200, answer.text
    [document] = answer.json()["documents"]
    [label] = document["labels"]
    assert label["path"] == "arts > music"
    assert label["uri"] == "http://example.org/music"
    [above] = label["ancestors"]
    assert above["label"] == "arts"
    assert above["probability"] >= label["probability"]


def test_labels_are_searched_without_accents_and_shown_with_children(client: TestClient) -> None:
    nodes = client.get("/v1/models/topics/taxonomy/search", params={"q": "ÁR"}).json()["nodes"]
    assert [each["label"] for each in nodes] == ["arts"]
    root = client.get("/v1/models/topics/taxonomy/nodes/root").json()
    assert root["node"] is None
    assert [each["label"] for each in root["children"]] == ["science", "arts"]
    arts = client.get(f"/v1/models/topics/taxonomy/nodes/{nodes[0]['node']}").json()
    assert [each["label"] for each in arts["children"]] == ["music", "painting"]
