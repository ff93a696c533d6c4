"""Rules with a guarantee in the service: what an answer promises, and which sets it has."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import Client
from treelabel import TreelabelError, TunedRule, decide, fit, load_model, load_sample, tune
from treelabel.serve.app import create_app
from treelabel.serve.options import ServeOptions

TEXTS = ["a dog that hunts foxes", "a fruit tree", "", "nothing of all this"]


@pytest.fixture(scope="module")
def covering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that was fitted with a coverage."""
    folder = tmp_path_factory.mktemp("models") / "covering"
    fit(load_sample()[::10], preset="fast", coverage=0.8).save(folder)
    return folder


@pytest.fixture(scope="module")
def sets(nouns: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rule that was tuned for the model of nouns."""
    file, model, valid = tmp_path_factory.mktemp("rules") / "sets.json", load_model(nouns), load_sample()[5::10]
    tune(valid, model.score(valid), "conformal(coverage=0.9, nodes=2)").save(file)
    return file


def ask(client: TestClient, model: str, **body: Any) -> Any:
    answer = client.post(f"/v1/models/{model}/predict", json={"texts": TEXTS, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_model_with_a_coverage_says_what_it_promises(serve: Client, covering: Path) -> None:
    client, model = serve(covering), load_model(covering)
    answer = ask(client, "covering")
    assert answer["promise"] == "the nodes cover the true label with a probability of at least 0.8"
    sizes = decide(model.score(TEXTS), model.default_rule).most_specific
    leaves = model.hierarchy_.count_leaves(sizes).tolist()
    for row, document in enumerate(answer["documents"]):
        if document["labels"]:
            assert document["set"] == {"nodes": 1, "leaves": leaves[row], "is_root": False}
            assert not document["abstained"]
        else:
            assert document["set"] == {"nodes": 0, "leaves": 273, "is_root": True}
    # The root alone covers an empty text.
    assert answer["documents"][2]["set"]["is_root"] is True
    about = client.get("/v1/models/covering").json()
    assert (about["promise"], about["tuned_rules"]) == (answer["promise"], {})
    lines = client.post(
        "/v1/models/covering/predict", content='{"text": "a dog"}\n', headers={"content-type": "application/x-ndjson"}
    )
    assert set(lines.json()["set"]) == {"nodes", "leaves", "is_root"}


def test_other_rules_and_changed_questions_promise_nothing(serve: Client, covering: Path) -> None:
    client = serve(covering)
    own = load_model(covering).default_rule
    assert ask(client, "covering", rule=own)["promise"] is not None
    assert ask(client, "covering", unknown=0.5)["promise"] is not None
    for settings in ({"rule": "best_leaf"}, {"k": 2}, {"threshold": 0.5}, {"rule": "conformal(coverage=0.9, t=0.1)"}):
        assert ask(client, "covering", **settings)["promise"] is None
    assert ask(client, "covering", rule="best_leaf")["documents"][0]["set"] is None
    # Given what is known, scores are other ones than those that calibrated.
    known = ask(client, "covering", known=["animal"])
    assert (known["promise"], known["documents"][0]["set"]) == (None, None)
    refused = client.post("/v1/models/covering/predict", json={"text": "a", "rule": "conformal(coverage=0.9)"})
    assert refused.status_code == 422
    assert "has to be calibrated on validation data first" in refused.json()["detail"]


def test_a_rule_that_was_tuned_answers_by_the_name_of_its_file(
    serve: Client, nouns: Path, covering: Path, sets: Path
) -> None:
    client, model = serve(nouns, covering, rules=(sets,)), load_model(nouns)
    answer = ask(client, "nouns", rule="sets.json")
    assert answer["promise"] == "the nodes cover the true label with a probability of at least 0.9"
    assert answer["rule"].startswith("conformal(t=")
    expected = decide(model.score(TEXTS), str(sets)).paths()
    found = [sorted(label["path"] for label in document["labels"]) for document in answer["documents"]]
    assert found == [sorted(paths) if text else [] for paths, text in zip(expected, TEXTS, strict=True)]
    assert all(document["set"]["nodes"] <= 2 for document in answer["documents"])
    assert client.get("/v1/models/nouns").json()["tuned_rules"] == {"sets.json": answer["promise"]}
    for settings in ({"threshold": 0.5}, {"k": 2}):
        refused = client.post("/v1/models/nouns/predict", json={"text": "a", "rule": "sets.json", **settings})
        assert refused.status_code == 422
    page = client.post("/page/try?model=nouns", data={"text": TEXTS[0]}).text
    assert "Promised: the nodes cover the true label with a probability of at least 0.9." in page
    assert "of 273 leaves" in page
    file = ("a.csv", f"text\n{TEXTS[0]}\n")
    labelled = client.post("/page/file?model=nouns", data={"rule": "sets.json"}, files={"file": file})
    assert labelled.status_code == 200
    assert all(path in labelled.text for path in expected[0])


@pytest.mark.parametrize("rule", ["sets.json", "/etc/passwd.json", "../model/model.json"])
def test_requests_read_no_files(client: TestClient, rule: str) -> None:
    answer = client.post("/v1/models/nouns/predict", json={"text": "a", "rule": rule})
    assert answer.status_code == 422
    assert "a rule of a request reads no files" in answer.json()["detail"]


def test_rules_that_cannot_be_served_are_refused_at_the_start(
    nouns: Path, topics: Path, sets: Path, tmp_path: Path
) -> None:
    def start(*folders: Path, rules: tuple[Path, ...]) -> None:
        create_app(folders, ServeOptions(state=tmp_path / "state", rules=rules))

    with pytest.raises(TreelabelError, match=r"the rule 'sets.json' was tuned under a hierarchy that no model has"):
        start(topics, rules=(sets,))
    with pytest.raises(TreelabelError, match=r"two rules are called 'sets.json'"):
        start(nouns, rules=(sets, sets))
    tuned = TunedRule.load(sets)
    by_column = TunedRule(tuned.rule, {**tuned.settings, "t": [0.5]}, tuned.fingerprint, {}, "source", ("web",))
    by_column.save(tmp_path / "by.json")
    with pytest.raises(TreelabelError, match="the rule goes by the column 'source' of the data, and requests have"):
        start(nouns, rules=(tmp_path / "by.json",))


def test_the_page_shows_a_set_and_its_promise(serve: Client, covering: Path) -> None:
    client = serve(covering)
    page = client.post("/page/try?model=covering", data={"text": TEXTS[0]}).text
    assert "Promised: the nodes cover the true label with a probability of at least 0.8." in page
    assert "the model&#39;s own" in page or "the model's own" in page
    anything = client.post("/page/try?model=covering", data={"text": "zzz"}).text
    root = not ask(client, "covering", texts=["zzz"])["documents"][0]["labels"]
    assert (">Anything</h2>" in anything) == root
    about = client.get("/page/model?model=covering").text
    assert "documents that were kept out of learning" in about
