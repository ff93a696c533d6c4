import pytest
from starlette.testclient import TestClient

TEXT = "a song of the choir"


def test_every_text_has_a_list_of_its_own(client: TestClient) -> None:
    [alone] = client.post("/hf/topics", json={"inputs": TEXT}).json()
    assert alone[0]["label"] == "arts > music"
    assert len(alone) == 4
    body = {"inputs": [TEXT, ""], "parameters": {"top_k": 2, "function_to_apply": "softmax"}}
    assert client.post("/hf/topics", json=body).json() == [alone[:2], []]


def test_tei_answers_a_text_with_a_list_and_a_batch_with_lists(client: TestClient) -> None:
    alone = client.post("/tei/topics/predict", json={"inputs": TEXT, "truncate": True}).json()
    assert alone[0]["label"] == "arts > music"
    assert client.post("/tei/topics/predict", json={"inputs": [TEXT]}).json() == alone
    batch = client.post("/tei/topics/predict", json={"inputs": [[TEXT], ["quark energy"]]}).json()
    assert batch[0] == alone
    assert batch[1][0]["label"] == "science > physics"


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": ["secret", "two"]},
        {"inputs": [["secret", "two"]]},
        {"inputs": ["secret", "two", "three"]},
        {"inputs": []},
        {"inputs": [[]]},
        {"inputs": [["secret"], "two"]},
        {"inputs": 7},
        {},
        {"inputs": "secret", "raw_scores": True},
    ],
)
def test_pairs_and_raw_scores_are_refused_in_words(client: TestClient, body: dict[str, object]) -> None:
    answer = client.post("/tei/topics/predict", json=body)
    assert answer.status_code == 422
    assert answer.json().keys() == {"error", "error_type"}
    assert answer.json()["error_type"] == "validation"
    assert "secret" not in answer.text


def test_tei_describes_its_labels(client: TestClient) -> None:
    assert client.get("/tei/topics/health").content == b""
    info = client.get("/tei/topics/info").json()
    labels = info["model_type"]["classifier"]
    assert labels["id2label"]["0"] == "science > physics"
    assert labels["label2id"] == {label: int(number) for number, label in labels["id2label"].items()}


@pytest.mark.parametrize("path", ["/hf/none", "/tei/none/predict"])
def test_models_that_are_not_there(client: TestClient, path: str) -> None:
    answer = client.post(path, json={"inputs": TEXT})
    assert answer.status_code == 404
    assert "none" in answer.json()["error"]


def test_a_function_that_does_not_give_probabilities_is_refused(client: TestClient) -> None:
    answer = client.post("/hf/topics", json={"inputs": TEXT, "parameters": {"function_to_apply": "none"}})
    assert answer.status_code == 422
    assert "function_to_apply" in answer.json()["error"]
