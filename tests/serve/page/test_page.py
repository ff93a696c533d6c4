"""Pages in this process: they render, say what they should, load nothing from elsewhere, and work without scripts."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import openpyxl
import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import Client
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.registry import make_model

PAGES = ("/", "/page/review", "/page/model", "/page/taxonomy", "/page/jobs")
TEXT = "a large wild cat that lives in Africa"
DOCUMENT = json.dumps(TEXT)
HOSTILE = "<img src=x onerror=alert(1)>"
TOKEN = "sixteen-characters-and-more"


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.all.append((tag, dict(attrs)))

    def named(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """List the attributes of elements of a name that have some values."""
        return [found for name, found in self.all if name == tag and attributes.items() <= found.items()]


def journal(state: Path, model: str) -> list[dict[str, object]]:
    """Read the journal of a model."""
    lines = (state / model / "journal.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("model", ["nouns", "topics"])
def test_pages_render_and_load_nothing_from_elsewhere(client: TestClient, path: str, model: str) -> None:
    answer = client.get(path, params={"model": model})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    for tag, attributes in Elements(answer.text).all:
        for name, value in attributes.items():
            # The policy of the page forbids what is inline.
            assert not name.startswith("on")
            assert name != "style"
            if name in ("src", "href", "action") and value is not None:
                assert re.match(r"/(?!/)|#", value), (tag, value)
                assert name == "action" or client.get(value).status_code == 200
    assert "<style" not in answer.text
    assert not re.search(r"<script(?! src=)", answer.text)


def test_everything_together_is_small() -> None:
    folder = files("treelabel.serve.page")
    parts = [part for name in ("static", "templates") for part in folder.joinpath(name).iterdir()]
    style = files("treelabel.core").joinpath("page_style.css")
    assert sum(len(part.read_bytes()) for part in [*parts, style]) < 300_000
    for part in parts:
        # Names of vocabularies are no addresses that anything is loaded from.
        text = part.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"^\s*// .*$", "", text, flags=re.MULTILINE), part.name


def test_pages_with_results_stay_small_and_forms_say_where_they_are_from(client: TestClient) -> None:
    answer = client.post("/page/try", data={"text": TEXT})
    assert len(answer.content) < 100_000
    # Without a referrer, a browser would call the origin of a form null, which is refused as another site's.
    assert answer.headers["referrer-policy"] == "same-origin"


def test_a_text_gets_a_tree_rules_and_words(client: TestClient) -> None:
    page = client.post("/page/try?model=nouns", data={"text": TEXT}).text
    elements = Elements(page)
    rules = elements.named("input", type="radio")
    assert len(rules) >= 5
    assert sum("checked" in each for each in rules) == 1
    suggested = client.post("/v1/models/nouns/predict", json={"text": TEXT}).json()["documents"][0]["labels"][0]
    assert f'data-ends="{suggested["node"]}"' in page
    for node in [*suggested["ancestors"], suggested]:
        assert f'<span class="name">{node["label"]}</span>' in page
    assert elements.named("mark")


def test_a_rule_that_is_asked_for_decides(client: TestClient) -> None:
    asked = {"text": TEXT, "rule": "best_leaf", "other": "top_k(k=2, leaves=true)", "unknown": "0"}
    page = client.post("/page/try?model=nouns", data=asked).text
    checked = next(each for each in Elements(page).named("input", type="radio") if "checked" in each)
    ends = (checked["data-ends"] or "").split()
    scored = client.post("/v1/models/nouns/predict", json={"text": TEXT, "k": 2}).json()["documents"][0]["labels"]
    assert sorted(ends) == sorted(str(each["node"]) for each in scored)
    unknown = Elements(client.post("/page/try?model=nouns", data={"text": TEXT, "unknown": "1"}).text)
    assert {each["data-ends"] for each in unknown.named("input", type="radio")} == {""}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"text": TEXT, "other": "best_lef"}, "best_leaf"),
        ({"text": TEXT, "unknown": "2"}, "from 0 to 1"),
        ({"text": TEXT, "unknown": "nan"}, "from 0 to 1"),
    ],
)
def test_wrong_settings_are_named_on_a_page(client: TestClient, data: dict[str, str], words: str) -> None:
    answer = client.post("/page/try", data=data)
    assert answer.status_code == 422
    assert words in answer.text
    assert 'class="note problem"' in answer.text


def test_models_that_cannot_explain_show_no_words(serve: Client, tmp_path: Path) -> None:
    make_model("most_frequent").fit(["a", "b", "c"] * 10, ["x > y", "x > z", "v"] * 10).save(tmp_path / "plain")
    page = serve(tmp_path / "plain").post("/page/try", data={"text": "a"}).text
    assert "<mark" not in page
    assert '<span class="name">x</span>' in page


def test_hostile_names_and_texts_are_escaped_everywhere(serve: Client, tmp_path: Path) -> None:
    h = Hierarchy.from_paths([f"{HOSTILE} > <b>{number}</b>" for number in range(3)])
    labels = [h.names[node] for node in h.leaves.tolist()] * 10
    make_model("most_frequent", hierarchy=h).fit(["text"] * 30, labels).save(tmp_path / "hostile")
    client = serve(tmp_path / "hostile", learn=True)
    pages = [client.get(path).text for path in PAGES]
    pages += [client.get("/page/taxonomy", params={"q": "<b>", "node": 0}).text]
    pages += [client.post("/page/try", data={"text": HOSTILE, "other": "top_k@3"}).text]
    pages += [client.post("/page/review", data={"texts": HOSTILE}).text]
    pages += [client.post("/page/feedback", data={"document": json.dumps(HOSTILE), "choice": "1"}).text]
    pages += [client.post("/page/try", data={"text": "x", "other": HOSTILE}).text]
    for page in pages:
        tags = {tag for tag, _ in Elements(page).all}
        assert not tags & {"img", "b"}
    assert all("&lt;img" in page for page in [*pages[2:4], *pages[5:]])


# Corrections


@pytest.mark.parametrize(
    ("form", "labels"),
    [
        ({"choice": "0"}, ["animal"]),
        ({"choice": ""}, []),
        ({"choice": "label", "label": "wine"}, ["food > beverage > alcohol > wine"]),
        ({"choice": "label", "node": "0"}, ["animal"]),
    ],
)
def test_what_a_person_says_reaches_the_journal(
    serve: Client, tmp_path: Path, form: dict[str, str], labels: list[str]
) -> None:
    answer = serve(learn=True).post("/page/feedback?model=nouns", data={"document": DOCUMENT, "predicted": "0", **form})
    assert answer.status_code == 200
    assert 'id="saved"' in answer.text
    entry = journal(tmp_path / "state", "nouns")[0]
    assert (entry["text"], entry["labels"], entry["predicted"]) == (TEXT, labels, [["animal"]])
    assert entry["source"] == "page"


def test_several_labels_are_saved_together(serve: Client, tmp_path: Path) -> None:
    client = serve(learn=True)
    assert 'type="checkbox"' in client.post("/page/try?model=topics", data={"text": "quark song"}).text
    client.post(
        "/page/feedback?model=topics", data={"document": DOCUMENT, "choice": "label", "node": ["2", "4"], "label": "N5"}
    )
    assert len(journal(tmp_path / "state", "topics")[0]["labels"]) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "form",
    [
        {"choice": "label", "label": "no such label"},
        {"choice": "label"},
        {"choice": "100000"},
        {"choice": "-1"},
        {"choice": "all"},
        {"choice": "0", "document": TEXT},
        {"choice": "0", "document": "[1]"},
        {"choice": "0", "document": '""'},
    ],
)
def test_labels_that_are_not_there_are_refused(serve: Client, tmp_path: Path, form: dict[str, str]) -> None:
    answer = serve(learn=True).post("/page/feedback?model=nouns", data={"document": DOCUMENT, **form})
    assert answer.status_code == 422
    assert 'class="note problem"' in answer.text
    assert not (tmp_path / "state" / "nouns" / "journal.jsonl").exists() or not journal(tmp_path / "state", "nouns")


def test_without_learning_the_page_says_so(client: TestClient) -> None:
    page = client.post("/page/try", data={"text": TEXT}).text
    assert "--learn" in page
    assert 'id="feedback"' not in page
    assert client.post("/page/feedback", data={"document": DOCUMENT, "choice": "0"}).status_code == 403


# Files


def test_a_csv_comes_back_with_its_columns_and_labels(client: TestClient) -> None:
    content = f"id,text,note\n1,{TEXT},=1+1\n2,,empty\n".encode()
    answer = client.post("/page/file?model=nouns", files={"file": ("my list.csv", content)})
    assert answer.headers["content-disposition"].endswith("my_list-labelled.csv")
    assert answer.headers["x-rows"] == "2"
    first, second = csv.DictReader(io.StringIO(answer.text))
    predicted = client.post("/v1/models/nouns/predict", json={"text": TEXT}).json()["documents"][0]["labels"][0]
    assert first["path"] == predicted["path"]
    assert float(first["p"]) == pytest.approx(predicted["probability"])
    # A spreadsheet would run what begins with =.
    assert first["note"] == "'=1+1"
    assert second["predicted"] == ""


def test_a_spreadsheet_comes_back_as_one(client: TestClient) -> None:
    book, content = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["title", "body"])
    book.active.append(["one", TEXT])
    book.save(content)
    data = {"column": "body", "rule": "top_k(k=2, leaves=true)"}
    answer = client.post("/page/file?model=nouns", data=data, files={"file": ("a.xlsx", content.getvalue())})
    rows = list(openpyxl.load_workbook(io.BytesIO(answer.content)).active.values)
    assert rows[0][:4] == ("title", "body", "predicted", "path")
    assert rows[1][:2] == ("one", TEXT)
    assert len(str(rows[1][2]).split("; ")) == 2


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.exe", b"text\n", ".csv"),
        ("a", b"text\n", "no ending"),
        ("a.csv", b"", "the file is empty"),
        ("a.xlsx", b"no archive", "not an .xlsx file"),
        ("../../a.csv", b"a,b\n1,2\n", "no column looks like the text"),
    ],
)
def test_files_that_cannot_be_read_are_refused(client: TestClient, name: str, content: bytes, words: str) -> None:
    answer = client.post("/page/file?model=nouns", files={"file": (name, content)})
    assert answer.status_code == 422
    assert words in answer.text
    assert "/tmp" not in answer.text


def test_a_file_of_many_batches_keeps_its_order(client: TestClient) -> None:
    content = "id,text\n" + "".join(f"{row},{'cat' if row % 2 else 'wine'} {row}\n" for row in range(2_500))
    answer = client.post("/page/file?model=nouns", files={"file": ("a.csv", content.encode())})
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["id"] for row in rows] == [str(row) for row in range(2_500)]


# The model and its taxonomy


def test_the_model_page_has_evidence_calibration_and_labels(client: TestClient) -> None:
    page = client.get("/page/model?model=nouns&order=rarest").text
    about = client.get("/v1/models/nouns").json()
    assert f"{about['evidence']['rules'][0]['f1']:.3f}" in page
    assert about["version"] in page
    marks = Elements(page).named("circle")
    assert marks
    assert all(0 <= float(each["cx"] or -1) <= 440 for each in marks)
    last = client.get("/page/model?model=nouns&offset=350").text
    assert f"351 to {about['labels']} of {about['labels']}" in last


def test_the_taxonomy_is_walked_by_links_and_searched(client: TestClient) -> None:
    top = client.get("/page/taxonomy?model=nouns").text
    children = client.get("/v1/models/nouns/taxonomy/nodes/root").json()["children"]
    assert all(f'data-node="{each["node"]}"' in top for each in children if each["child_count"])
    below = client.get("/page/taxonomy?model=nouns&node=0").text
    assert 'class="trail"' in below
    assert client.get("/page/taxonomy?model=nouns&node=9999").status_code == 404
    assert "wine" in client.get("/page/taxonomy?model=nouns&q=win").text
    assert "No label has this" in client.get("/page/taxonomy?model=nouns&q=xyzzy").text


# Reviewing and learning


def test_the_queue_is_in_the_order_of_review(serve: Client, tmp_path: Path) -> None:
    (tmp_path / "pool.csv").write_text("text\na wild cat\nsomething odd\na red wine\n", encoding="utf-8")
    client = serve(learn=True, pool=tmp_path / "pool.csv")
    listed = [each["text"] for each in client.get("/v1/models/nouns/review").json()["texts"]]
    shown = re.findall(r"<blockquote>(.*?)</blockquote>", client.get("/page/review?model=nouns").text)
    assert shown == listed
    assert len(shown) == 3
    client.post("/page/feedback?model=nouns", data={"document": json.dumps(shown[0]), "choice": ""})
    assert shown[0] not in client.get("/page/review?model=nouns").text


def test_a_text_is_recorded_as_it_is(serve: Client, tmp_path: Path) -> None:
    text = "line one\r\nline 'two'\n\t\"three\" </textarea> &amp; \u2028"
    (tmp_path / "pool.jsonl").write_text(json.dumps({"text": text}), encoding="utf-8")
    client = serve(learn=True, pool=tmp_path / "pool.jsonl")
    for page in (client.get("/page/review?model=nouns"), client.post("/page/try?model=nouns", data={"text": text})):
        document = Elements(page.text).named("input", name="document")[0]["value"]
        client.post("/page/feedback?model=nouns", data={"document": document, "choice": ""})
    first, second = journal(tmp_path / "state", "nouns")
    assert first["text"] == text
    assert second["text"] == text.replace("\r\n", "\n")
    assert "Nothing is left" in client.get("/page/review?model=nouns").text


def test_texts_of_ones_own_are_put_in_order(client: TestClient) -> None:
    page = client.post("/page/review?model=nouns", data={"texts": "a wild cat\n\n a red wine \na wild cat"}).text
    assert sorted(re.findall(r"<blockquote>(.*?)</blockquote>", page)) == ["a red wine", "a wild cat"]
    assert client.post("/page/review?model=nouns", data={"texts": " \n"}).status_code == 422


def test_a_job_is_started_and_shown(serve: Client) -> None:
    client = serve(learn=True)
    client.post("/page/feedback?model=nouns", data={"document": DOCUMENT, "choice": "0"})
    assert "<strong>1</strong> correction" in client.get("/page/jobs?model=nouns").text
    page = client.post("/page/jobs/learn?model=nouns").text
    assert client.get("/v1/jobs").json()["jobs"][0]["id"] in page
    assert client.post("/page/jobs/rollback?model=nouns").status_code == 409
    assert client.post("/page/jobs/promote?model=nouns", data={"version": "0123456789ab"}).status_code == 404


# Tokens


def test_pages_say_nothing_without_a_token(serve: Client, tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text(f"predict {TOKEN}\n", encoding="utf-8")
    client = serve(learn=True, token_file=tmp_path / "tokens.txt")
    for path in PAGES:
        answer = client.get(path)
        assert answer.status_code == 401
        assert "nouns" not in answer.text
        assert 'id="token-form"' in answer.text
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert client.get("/page/model", headers=bearer).status_code == 200
    assert client.post("/page/feedback", data={"document": DOCUMENT, "choice": "0"}, headers=bearer).status_code == 403
    assert client.get("/page/static/page.js").status_code == 200


def test_scopes_are_those_of_the_service(serve: Client, tmp_path: Path) -> None:
    tokens = {scope: f"{scope}-{TOKEN}" for scope in ("predict", "learn", "admin")}
    lines = "".join(f"{scope} {token}\n" for scope, token in tokens.items())
    (tmp_path / "tokens.txt").write_text(lines, encoding="utf-8")
    client = serve(learn=True, token_file=tmp_path / "tokens.txt")
    for path, least in (("learn", "learn"), ("promote", "admin"), ("rollback", "admin")):
        for rank, (scope, token) in enumerate(tokens.items()):
            data, headers = {"version": "0123456789ab"}, {"Authorization": f"Bearer {token}"}
            status = client.post(f"/page/jobs/{path}?model=nouns", data=data, headers=headers).status_code
            assert (status == 403) == (rank < list(tokens).index(least)), (path, scope)
        assert client.post(f"/page/jobs/{path}?model=nouns", data=data).status_code == 401


def test_unknown_models_and_files_have_a_page_that_says_so(client: TestClient) -> None:
    for path in ("/?model=none", "/page/static/router.py", "/page/static/..%2Frouter.py"):
        assert client.get(path).status_code == 404
