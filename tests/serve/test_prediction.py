"""Rules, known labels, and probabilities of answers against the library's own."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.strategies import examples, hierarchies, with_scores
from treelabel.hierarchy.label_matrices import label_matrix
from treelabel.models.persistence.load import load_model
from treelabel.rules.decisions import decide
from treelabel.rules.registry import RULES
from treelabel.scores.score_matrix import Scores
from treelabel.serve.prediction import condition_on

TEXTS = ["a quark and a song of the choir", "canvas", "", "nothing of all this"]


def predict(client: TestClient, **body: object) -> list[list[str]]:
    answer = client.post("/v1/models/topics/predict", json={"texts": TEXTS, **body})
    assert answer.status_code == 200, answer.text
    return [[label["label"] for label in document["labels"]] for document in answer.json()["documents"]]


# Rules that need a setting.
SETTINGS = {
    "back_off": "back_off@0.8",
    "conformal": "conformal(t=0.6)",
    "optimal:cost": "optimal:cost(similarity=lin)",
    "risk_control": "risk_control(t=0.7)",
}


def test_every_rule_answers_as_the_library_does(client: TestClient, topics: Path) -> None:
    model = load_model(topics)
    profile, names = model.profile_, model.hierarchy_.names
    for rule in (SETTINGS.get(name, name) for name in RULES):
        expected = decide(model.score(TEXTS), rule, profile.frequencies, profile.documents).most_specific
        for row, labels in enumerate(predict(client, rule=rule)):
            nodes = expected.indices[expected.indptr[row] : expected.indptr[row + 1]].tolist()
            assert sorted(labels) == sorted(names[node] for node in nodes if TEXTS[row]), rule


@pytest.mark.parametrize("rule", ["optimal:cost(matrix='/etc/passwd')", "/etc/passwd.json", "threshold@/x.json"])
def test_a_rule_reads_no_files(client: TestClient, rule: str) -> None:
    answer = client.post("/v1/models/topics/predict", json={"text": "a", "rule": rule})
    assert answer.status_code == 422
    assert "no such file" not in answer.text.lower()


def test_k_and_threshold(client: TestClient) -> None:
    assert [len(labels) for labels in predict(client, k=2)] == [2, 2, 0, 2]
    assert predict(client, rule="top_k(leaves=true)", k=1)[1] == ["painting"]
    assert predict(client, threshold=0.999_99)[3] == []
    refused = client.post("/v1/models/topics/predict", json={"text": "a", "rule": "best_leaf", "k": 2})
    assert (refused.status_code, "no setting 'k'" in refused.json()["detail"]) == (422, True)


def test_unknown_abstains_and_alternatives_are_other_leaves(client: TestClient) -> None:
    body = {"text": "canvas", "unknown": 1.0, "alternatives": 4}
    [document] = client.post("/v1/models/topics/predict", json=body).json()["documents"]
    assert document["abstained"] is True
    assert document["alternatives"][0]["label"] == "painting"
    assert len(document["alternatives"]) == 4


def test_below_known_labels_only_descendants_are_predicted(client: TestClient) -> None:
    answer = client.post("/v1/models/topics/predict", json={"text": "canvas", "known": ["science"], "k": 1}).json()
    [label] = answer["documents"][0]["labels"]
    assert label["path"].startswith("science > ")
    assert label["ancestors"][0]["probability"] == 1
    # What is known stays, whatever the rule says.
    assert predict(client, known=["N1"], unknown=1.0, threshold=1.0)[3] == ["arts"]
    wrong = client.post("/v1/models/topics/predict", json={"text": "canvas", "known": [["arts", "physics"]]})
    assert wrong.status_code == 422


@examples(50)
@given(st.data())
def test_conditioning_on_a_node_is_the_ratio(data: st.DataObject) -> None:
    drawn, array = data.draw(with_scores(hierarchies()))
    h = drawn.fast
    scores = Scores(h, array).coherent()
    node = data.draw(st.integers(0, len(h) - 1))
    values = scores.dense()
    above = {node, *h.ancestors([node]).indices.tolist()}
    below = set(h.descendants([node]).indices.tolist())
    for form in (scores, Scores(h, scores.csr())):
        conditioned = condition_on(form, label_matrix([0, 1], [node], len(h))).dense()
        for row in range(len(values)):
            for each in range(len(h)):
                p = values[row, each] / values[row, node] if values[row, node] > 0 else 0
                expected = 1 if each in above else min(p, 1) if each in below else 0
                assert np.isclose(conditioned[row, each], expected)


def test_score_and_explain(client: TestClient) -> None:
    scored = client.post("/v1/models/topics/score", json={"text": "canvas", "k": 3}).json()["documents"][0]["nodes"]
    assert [each["label"] for each in scored[:2]] == ["arts", "painting"]
    explained = client.post("/v1/models/topics/explain", json={"text": "canvas"}).json()["steps"]
    assert [each["label"] for each in explained] == ["arts", "painting"]
    assert explained[1]["supporting"][0][0] in ("canvas", "|can~", "~vas|", "~anva~", "canvas|")
    body = {"text": "canvas", "label": "physics"}
    assert client.post("/v1/models/topics/explain", json=body).json()["steps"][-1]["label"] == "physics"
