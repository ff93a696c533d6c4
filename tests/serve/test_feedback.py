import json
from pathlib import Path

from tests.serve.conftest import Client


def test_corrections_are_on_disk_and_wrong_labels_are_refused(serve: Client, tmp_path: Path) -> None:
    client = serve(learn=True)
    address = "/v1/models/topics/feedback"
    right = {"text": "oil on wood", "labels": [["arts", "painting"]]}
    answer = client.post(address, json={"corrections": [right, {**right, "labels": ["N4"]}]})
    assert answer.json() == {"accepted": 2, "journal": 2}, answer.text
    lines = (tmp_path / "state" / "topics" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["labels"] for line in lines] == [["arts > painting"], ["arts > music"]]
    for wrong in (["science", "painting"], "sculpture"):
        refused = client.post(address, json={"corrections": [right, {**right, "labels": [wrong]}]})
        assert refused.status_code == 422
        assert "oil on wood" not in refused.text
    assert len((tmp_path / "state" / "topics" / "journal.jsonl").read_text().splitlines()) == 2


def test_without_learn_corrections_are_refused(client: Client) -> None:
    answer = client.post("/v1/models/topics/feedback", json={"corrections": [{"text": "a", "labels": []}]})  # type: ignore[attr-defined]
    assert answer.status_code == 403
    assert "--learn" in answer.json()["detail"]
