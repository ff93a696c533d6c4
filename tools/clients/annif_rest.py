"""Ask a service by annif-client: `annif_rest.py ADDRESS`."""

import sys
from importlib.metadata import version

import requests
from annif_client import AnnifClient

TEXT = "a small bird that sings at night"
client = AnnifClient(f"{sys.argv[1]}/v1/")
assert set(client.api_info) == {"title", "version"}, client.api_info
assert [each["project_id"] for each in client.projects] == ["nouns"], client.projects
project = client.get_project("nouns")
assert project["is_trained"] is True, project
assert {"name", "language", "backend", "vocab", "vocab_language", "modification_time"} <= project.keys(), project

hits = client.suggest("nouns", TEXT)
assert len(hits) == 10, hits
assert all(hit.keys() >= {"uri", "label", "notation", "score"} for hit in hits), hits
assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True), hits
assert client.suggest("nouns", TEXT, limit=2) == hits[:2]
assert client.suggest("nouns", TEXT, threshold=0.5) == [hit for hit in hits if hit["score"] >= 0.5]

documents = [{"text": TEXT, "document_id": "a"}, {"text": "été & 茶", "metadata": {"year": "1999"}}]
answers = client.suggest_batch("nouns", documents, limit=3, threshold=0.01)
assert [each["document_id"] for each in answers] == ["a", None], answers
assert answers[0]["results"] == [hit for hit in hits[:3] if hit["score"] >= 0.01], answers

learned = client.learn("nouns", [{"text": TEXT, "subjects": [{"uri": hits[0]["uri"], "label": hits[0]["label"]}]}])
assert learned.status_code == 204, learned
for call in (client.get_project, lambda name: client.suggest(name, TEXT)):
    try:
        call("nothing")
    except ValueError as error:
        assert "nothing" in str(error), error
    else:
        raise AssertionError("a project that is not there was accepted")
try:
    client.suggest_batch("nouns", [{"text": TEXT}] * 33)
except requests.HTTPError as error:
    assert error.response.status_code == 400, error
    assert error.response.headers["content-type"] == "application/problem+json", error.response.headers
else:
    raise AssertionError("more than 32 documents were accepted")
print("annif-client", version("annif-client"))
