import gzip
import json
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.serve.conftest import Client
from treelabel.serve.problems import ProblemError
from treelabel.serve.protocols.bytes_tensors import decompress, pack_texts, unpack_texts

INFER = "/v2/models/topics/infer"


def tensor(*texts: Any, **other: Any) -> dict[str, Any]:
    return {"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": list(texts), **other}


def test_texts_without_enough_labels_are_padded(client: TestClient) -> None:
    body = {"id": "7", "inputs": [tensor("a song", "")], "parameters": {"k": 6, "sequence_id": 3}}
    answer = client.post(INFER, json=body).json()
    labels, scores = answer["outputs"]
    assert answer["id"] == "7"
    assert labels["shape"] == scores["shape"] == [2, 6]
    assert labels["data"][0] == "arts > music"
    assert labels["data"][4:] == [""] * 8
    assert scores["data"][4:] == [0.0] * 8
    assert min(scores["data"][:4]) > 0


def test_a_model_is_described_with_its_version_and_only_that(client: TestClient) -> None:
    described = client.get("/v2/models/topics").json()
    [version] = described["versions"]
    assert client.get(f"/v2/models/topics/versions/{version}").json() == described
    assert client.get(f"/v2/models/topics/versions/{version}/ready").json()["ready"] is True
    assert client.post(f"/v2/models/topics/versions/{version}/infer", json={"inputs": [tensor("a")]}).status_code == 200
    for path in ("/v2/models/topics/versions/1", "/v2/models/none", "/v2/models/none/ready"):
        assert client.get(path).status_code == 404
        assert isinstance(client.get(path).json()["error"], str)


def test_outputs_come_in_the_order_and_the_form_that_is_asked_for(client: TestClient) -> None:
    outputs = [{"name": "scores", "parameters": {"binary_data": True}}, {"name": "labels"}]
    body = {"inputs": [tensor(["a song"], shape=[1, 1])], "outputs": outputs, "parameters": {"k": 1}}
    answer = client.post(INFER, json=body)
    size = int(answer.headers["inference-header-content-length"])
    scores, labels = json.loads(answer.content[:size])["outputs"]
    assert (scores["name"], scores["parameters"]) == ("scores", {"binary_data_size": 4})
    assert labels["data"] == ["arts > music"]
    assert len(answer.content) == size + 4


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": []},
        {"inputs": [tensor("secret", name="picture")]},
        {"inputs": [tensor("secret", datatype="FP32")]},
        {"inputs": [tensor("secret"), tensor("secret")]},
        {"inputs": [tensor("secret", shape=[2])]},
        {"inputs": [tensor("secret", shape=[1, 1, 1])]},
        {"inputs": [tensor("secret", shape=[-1])]},
        {"inputs": [tensor(1)]},
        {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES"}]},
        {"inputs": [tensor("secret", parameters={"binary_data_size": 0})]},
        {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}]},
        {"inputs": [tensor("secret")], "outputs": [{"name": "logits"}]},
        {"inputs": [tensor("secret")], "parameters": {"k": 0}},
        {"inputs": [tensor("secret")], "parameters": {"k": 1_001}},
        [],
        "secret",
    ],
)
def test_wrong_requests_are_refused_with_a_sentence(client: TestClient, body: Any) -> None:
    answer = client.post(INFER, json=body)
    assert answer.status_code == 400
    assert answer.json().keys() == {"error"}
    assert isinstance(answer.json()["error"], str)
    assert "secret" not in answer.text


@pytest.mark.parametrize("length", ["-1", "x", "10000", "1" * 5_000, "٣", "3"])
def test_a_wrong_length_of_the_json_is_refused(client: TestClient, length: str) -> None:
    headers = {b"inference-header-content-length": length.encode()}
    answer = client.post(INFER, content=b'{"inputs": []}', headers=headers)
    assert answer.status_code == 400
    assert isinstance(answer.json()["error"], str)


def test_requests_may_be_compressed_within_the_limit(serve: Client) -> None:
    client = serve(max_body=10_000)
    body = json.dumps({"inputs": [tensor("a song")]}).encode()
    for encoding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        headers = {"content-encoding": encoding}
        assert client.post(INFER, content=compress(body), headers=headers).status_code == 200
        assert client.post(INFER, content=compress(b" " * 1_000_000), headers=headers).status_code == 413
        assert client.post(INFER, content=compress(body)[:-5], headers=headers).status_code == 400
        assert client.post(INFER, content=body, headers=headers).status_code == 400
    assert client.post(INFER, content=body, headers={"content-encoding": "br"}).status_code == 415


def test_decompressing_stops_at_the_limit() -> None:
    with pytest.raises(ProblemError) as caught:
        decompress(gzip.compress(bytes(50_000_000)), "gzip", 1_000)
    assert caught.value.status == 413
    assert decompress(gzip.compress(bytes(1_000)), "gzip", 1_000) == bytes(1_000)


@given(st.lists(st.text()))
def test_texts_come_back_from_bytes(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    assert unpack_texts(pack_texts(texts)) == texts


@given(st.binary(max_size=20))
def test_any_bytes_are_texts_or_refused(data: bytes) -> None:
    with suppress(ProblemError):
        assert pack_texts(unpack_texts(data)) == data
