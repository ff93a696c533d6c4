import json

from starlette.testclient import TestClient

STREAM = {"content-type": "application/x-ndjson"}
ADDRESS = "/v1/models/topics/predict"


def test_a_stream_is_answered_line_by_line_and_a_wrong_line_in_its_place(client: TestClient) -> None:
    lines = ['{"text": "a choir", "id": 7}', "", "no json", '{"text": "gene", "rule": "best"}', '{"text": "gene"}']
    answer = client.post(ADDRESS, content="\n".join(lines), headers=STREAM)
    assert answer.status_code == 200
    first, second, third, fourth = map(json.loads, answer.text.splitlines())
    single = client.post(ADDRESS, json={"text": "a choir"}).json()["documents"][0]
    assert first == {"line": 1, "id": 7, **single}
    assert second["error"]["status"] == 422
    assert "unknown rule 'best'" in third["error"]["detail"]
    assert fourth["labels"][0]["label"] == "biology"
