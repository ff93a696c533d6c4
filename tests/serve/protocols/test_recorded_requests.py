"""Requests as real clients sent them (`tools/check_clients.py --record`) are answered as these clients read answers."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import Client
from treelabel.serve.protocols.bytes_tensors import unpack_texts

RECORDED = Path(__file__).with_name("recorded")
CLIENTS = sorted(path.stem for path in RECORDED.glob("*.json"))


def send(client: TestClient, record: dict[str, Any]) -> Any:
    body = base64.b64decode(record["base64"]) if "base64" in record else record["body"].encode()
    return client.request(record["method"], record["path"], content=body, headers=record["headers"])


def records(name: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture
def service(serve: Client, nouns: Path) -> TestClient:
    return serve(nouns, learn=True)


@pytest.mark.parametrize("name", CLIENTS)
def test_every_recorded_request_gets_the_status_that_it_got(service: TestClient, name: str) -> None:
    for record in records(name):
        answer = send(service, record)
        assert answer.status_code == record["status"], (record["path"], answer.text)


def test_what_the_app_of_label_studio_sent_is_in_the_journal(service: TestClient, tmp_path: Path) -> None:
    for record in records("label_studio_app"):
        send(service, record)
    lines = (tmp_path / "state" / "nouns" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["labels"] for line in lines] == [["animal > bird"], ["animal > mammal"], ["plant", "food"]]
    [job] = service.get("/v1/jobs").json()["jobs"]
    assert job["model"] == "nouns"


def answers(service: TestClient, name: str, ending: str) -> list[tuple[dict[str, Any], Any]]:
    """Return the answers to the requests of a client whose path has an ending, and that are accepted."""
    chosen = [
        each for each in records(name) if each["path"].partition("?")[0].endswith(ending) and each["status"] < 400
    ]
    assert chosen, "nothing recorded"
    return [(record, send(service, record)) for record in chosen]


@pytest.mark.parametrize("name", ["annif_rest", "annif_ensemble"])
def test_annif_reads_uris_and_scores_and_whether_a_project_is_trained(service: TestClient, name: str) -> None:
    for _, answer in answers(service, name, "/suggest"):
        hits = answer.json()["results"]
        assert all(hit["uri"].startswith("urn:treelabel:") and 0 <= hit["score"] <= 1 for hit in hits)
    for _, answer in answers(service, name, "/projects/nouns"):
        assert answer.json()["is_trained"] is True
        assert answer.json()["modification_time"]


def test_annif_client_reads_a_list_with_the_ids_of_documents(service: TestClient) -> None:
    [(_, answer)] = answers(service, "annif_rest", "/suggest-batch")
    assert [each["document_id"] for each in answer.json()] == ["a", None]
    assert len(answer.json()[0]["results"]) <= 3


def test_the_sdk_reads_one_prediction_for_each_task(service: TestClient) -> None:
    for record, answer in answers(service, "label_studio_predictions", "/predict"):
        results = answer.json()["results"]
        assert len(results) == len(json.loads(record["body"])["tasks"])
        for each in results:
            [region] = each["result"]
            assert region.keys() == {"from_name", "to_name", "type", "value"}
            assert region["value"].keys() == {region["type"]}


def read_tensors(answer: Any) -> dict[str, list[Any]]:
    """Read an answer as clients do: the JSON, then the bytes behind it in the order of tensors."""
    size = int(answer.headers.get("Inference-Header-Content-Length", len(answer.content)))
    head, rest = json.loads(answer.content[:size]), answer.content[size:]
    readers: dict[str, Callable[[bytes], list[Any]]] = {
        "BYTES": unpack_texts,
        "FP32": lambda data: np.frombuffer(data, np.float32).tolist(),
    }
    tensors = {}
    for output in head["outputs"]:
        length = output.get("parameters", {}).get("binary_data_size")
        if length is None:
            tensors[output["name"]] = output["data"]
        else:
            tensors[output["name"]], rest = readers[output["datatype"]](rest[:length]), rest[length:]
        assert len(tensors[output["name"]]) == np.prod(output["shape"])
    assert rest == b""
    return tensors


@pytest.mark.parametrize("name", ["open_inference_triton", "open_inference_kserve"])
def test_json_and_bytes_have_the_same_tensors(service: TestClient, name: str) -> None:
    by_shape: dict[int, list[dict[str, list[Any]]]] = {}
    for _, answer in answers(service, name, "/infer"):
        tensors = read_tensors(answer)
        by_shape.setdefault(len(tensors["scores"]), []).append(tensors)
    assert max(map(len, by_shape.values())) > 1
    for alike in by_shape.values():
        assert all(each == alike[0] for each in alike)
        assert alike[0]["scores"][0] > 0


def test_both_names_of_health_are_there(service: TestClient) -> None:
    for ending in ("/live", "/ready"):
        answer = service.get(f"/v2/health{ending}")
        assert answer.json() == {"live": True, "ready": True}


def test_the_inference_client_reads_the_first_of_the_lists(service: TestClient) -> None:
    for record, answer in answers(service, "hugging_face", "/hf/nouns"):
        [labels] = answer.json()
        top_k = json.loads(record["body"])["parameters"].get("top_k")
        assert len(labels) == (top_k or len(labels))
        assert [each["score"] for each in labels] == sorted((each["score"] for each in labels), reverse=True)
