"""Limits, tokens, headers and logs."""

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import Client
from treelabel.core.errors import TreelabelError
from treelabel.serve.logs import JsonLines
from treelabel.serve.security import AccessTokens

PREDICT = "/v1/models/topics/predict"
SECRET = "a gene that nobody may see"


def test_limits_are_refused_by_name(serve: Client) -> None:
    client = serve(max_body=300, max_documents=2)
    texts = client.post(PREDICT, json={"texts": ["a"] * 3})
    assert (texts.status_code, "max_documents is 2" in texts.json()["detail"]) == (413, True)
    body = client.post(PREDICT, json={"text": "a" * 300})
    assert (body.status_code, "max_body is 300" in body.json()["detail"]) == (413, True)
    # Without a length, the bytes are counted as they come.
    chunked = client.post(PREDICT, content=iter([b"a" * 200] * 2), headers={"content-type": "application/json"})
    assert chunked.status_code == 413
    # A stream may be longer than a request, but not a line of it.
    lines = [json.dumps({"text": "a gene"})] * 20 + [json.dumps({"text": "a" * 400}), json.dumps({"text": "b"})]
    stream = client.post(PREDICT, content="\n".join(lines), headers={"content-type": "application/x-ndjson"})
    answers = [json.loads(line) for line in stream.text.splitlines()]
    assert ["error" in each for each in answers] == [False] * 20 + [True, False]


@pytest.mark.parametrize(
    "path", ["/v1/models/topics/score", "/hf/topics", "/v2/models/topics/infer", "/nowhere/predict"]
)
def test_a_stream_that_no_route_reads_as_one_has_the_limit_of_a_body(serve: Client, path: str) -> None:
    client = serve(max_body=300)
    answer = client.post(path, content=iter([b"a" * 200] * 4), headers={"content-type": "application/x-ndjson"})
    assert answer.status_code == (404 if path.startswith("/nowhere") else 413)


@pytest.mark.parametrize("path", ["/v2/models/topics/infer", "/hf/topics", "/tei/topics/predict", "/label-studio/x/y"])
def test_limits_are_named_in_the_form_of_a_protocol(serve: Client, path: str) -> None:
    client = serve(max_body=10)
    answer = client.post(path, json={"inputs": "a long text"})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/json"
    assert "max_body is 10" in answer.json()["error"]


def test_too_many_requests_are_told_to_come_back_but_probes_are_answered(serve: Client) -> None:
    client = serve(max_concurrency=0)
    refused = client.get("/v1/models")
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "1"
    assert "max_concurrency" in refused.json()["detail"]
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.get("/readyz").status_code == 200
    assert client.get("/v2/health/ready").status_code == 200


def test_errors_are_problems_with_an_id_and_without_the_text(client: TestClient) -> None:
    for body in ({"text": SECRET, "rule": "best"}, {"text": SECRET, "k": 0}, {"text": SECRET, "texts": []}, [SECRET]):
        answer = client.post(PREDICT, json=body, headers={"x-request-id": "mine-1"})
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["x-request-id"] == "mine-1"
        assert set(answer.json()) == {"type", "title", "status", "detail"}
        assert "gene" not in answer.text
    broken = client.post(PREDICT, content=b'{"text": "gene', headers={"content-type": "application/json"})
    assert (broken.status_code, "gene" in broken.text) == (422, False)
    assert client.get("/v1/models/none").status_code == 404
    assert client.get("/nowhere").headers["content-type"] == "application/problem+json"
    assert client.get(PREDICT).status_code == 405
    # An id that could break a log is replaced.
    assert client.get("/livez", headers={"x-request-id": 'a"b'}).headers["x-request-id"] != 'a"b'


def test_an_unexpected_error_is_a_500_without_its_message(serve: Client, caplog: pytest.LogCaptureFixture) -> None:
    client: Any = serve()

    def fail(*_: object) -> None:
        raise RuntimeError(SECRET)

    client.app.state.service.summary = fail
    with caplog.at_level(logging.INFO):
        answer = client.get("/v1/models")
    assert answer.status_code == 500
    logged = "\n".join(JsonLines().format(record) for record in caplog.records)
    assert "RuntimeError" in logged
    assert SECRET not in answer.text + logged


def test_a_request_is_logged_without_texts_tokens_or_queries(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        client.post(PREDICT, json={"text": SECRET}, headers={"authorization": "Bearer token-token-token"})
        client.get("/v1/models/topics/taxonomy/search", params={"q": "gene"})
    lines = [JsonLines().format(record) for record in caplog.records if record.name.startswith("treelabel.serve")]
    logged = [json.loads(line) for line in lines]
    assert [each["route"] for each in logged] == [
        "/v1/models/{model_id}/predict",
        "/v1/models/{model_id}/taxonomy/search",
    ]
    assert not any(word in "".join(lines) for word in ("gene", "token-token"))


def test_tokens_have_scopes(serve: Client, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens = {scope: f"{scope}-0123456789" for scope in ("predict", "learn", "admin")}
    file.write_text("# of everybody\n" + "".join(f"{scope} {token}\n" for scope, token in tokens.items()))
    client = serve(token_file=file, learn=True)
    correction = {"corrections": [{"text": "a", "labels": []}]}
    asked = [("GET", "/v1/models", None), ("POST", "/v1/models/topics/feedback", correction)]
    asked += [("POST", "/v1/models/topics/rollback", None)]
    # What is allowed may still be refused for another reason: there is nothing to roll back to.
    expected = {"predict": [200, 403, 403], "learn": [200, 200, 403], "admin": [200, 200, 409]}
    for scope, statuses in expected.items():
        headers = {"authorization": f"Bearer {tokens[scope]}"}
        answered = [client.request(method, path, json=body, headers=headers) for method, path, body in asked]
        assert [each.status_code for each in answered] == statuses
    basic = base64.b64encode(f"anybody:{tokens['predict']}".encode()).decode()
    assert client.get("/v1/models", headers={"authorization": f"Basic {basic}"}).status_code == 200
    for wrong in ("", "Bearer ", "Bearer wrong", "Basic ???", f"Bearer {tokens['admin']}x"):
        refused = client.get("/v1/models", headers={"authorization": wrong})
        assert refused.status_code == 401
        assert "Bearer" in refused.headers["www-authenticate"]
    assert client.get("/livez").status_code == 200


@pytest.mark.parametrize("content", ["", "predict short", "everything 0123456789abcdef", "0123456789abcdef"])
def test_a_token_file_that_protects_nothing_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(TreelabelError, match="tokens"):
        AccessTokens(tmp_path / "tokens")


def test_pages_of_other_sites_are_refused_unless_they_are_named(serve: Client) -> None:
    client = serve()
    foreign = {"origin": "http://evil.example"}
    assert client.post(PREDICT, json={"text": "a"}, headers=foreign).status_code == 403
    assert client.post(PREDICT, json={"text": "a"}, headers={"origin": "http://testserver"}).status_code == 200
    assert "access-control-allow-origin" not in client.get("/v1/models", headers=foreign).headers
    named = serve(origins=("http://evil.example",))
    answer = named.post(PREDICT, json={"text": "a"}, headers=foreign)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "http://evil.example")
    assert serve(hosts=("localhost",)).get("/livez").status_code == 400


def test_security_headers_and_metrics(client: TestClient) -> None:
    answer = client.post(PREDICT, json={"texts": ["a gene", ""]})
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    metrics = client.get("/metrics").text
    for name in ("request_seconds_count", "queue_texts 0.0", "batch_texts_count", 'abstained_total{model="topics"}'):
        assert f"treelabel_{name}" in metrics
    assert 'treelabel_label_share_drift{level="1",model="topics"}' in metrics
