"""review: the queue and its order, what a person may write into it, training data of it; typos write nothing."""

import csv
from pathlib import Path

import pytest

from tests.helpers import Run
from tests.models.test_profile import TREE, documents, fitted
from treelabel import read, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a model and texts."""
    made = tmp_path_factory.mktemp("review")
    fitted().save(made / "model")
    write(documents(80, 6), made / "new.csv", taxonomy=False)
    return made


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def fill(path: Path, target: Path, labels: dict[int, str]) -> None:
    """Write labels into some rows, as a spreadsheet with semicolons would save them."""
    rows = rows_of(path)
    for row, label in labels.items():
        rows[row]["label"] = label
    with target.open("w", newline="", encoding="utf-8-sig") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    source = path.with_name(path.stem + ".taxonomy.tsv")
    target.with_name(target.stem + ".taxonomy.tsv").write_text(source.read_text())


@pytest.fixture
def queue(folder: Path, tmp_path: Path, run: Run) -> Path:
    """Make a queue."""
    ended = run("review", folder / "model", folder / "new.csv", "-o", tmp_path / "queue.csv", "--precision", "0.9")
    assert ended.code == 0, ended.err
    return tmp_path / "queue.csv"


def test_a_queue_has_suggestions_and_an_empty_column_for_labels(folder: Path, tmp_path: Path, run: Run) -> None:
    ended = run("review", folder / "model", folder / "new.csv", "-o", tmp_path / "queue.csv", "--precision", "0.9")
    assert ended.code == 0
    rows = rows_of(tmp_path / "queue.csv")
    assert list(rows[0]) == ["id", "text", "label", "status", "priority", "suggestion", "p", "alternatives"]
    assert {row["label"] for row in rows} == {""}
    status = [row["status"] for row in rows]
    assert status == sorted(status, reverse=True)
    waiting = [float(row["priority"]) for row in rows if row["status"] == "review"]
    assert waiting == sorted(waiting, reverse=True)
    texts = dict(zip(documents(80, 6).ids, documents(80, 6).texts, strict=True))
    assert all(texts[row["id"]] == row["text"] for row in rows)
    assert all(row["suggestion"] in TREE.paths() for row in rows)
    assert rows[0]["alternatives"].count(" | ") == 2
    accepted = status.count("accept")
    assert f"80 texts; {accepted:,} accepted" in ended.out
    assert "at least 0.9 of them right with 90% confidence (400 held-out documents)" in ended.out
    assert f"{80 - accepted} to review" in ended.out
    assert "treelabel review --apply" in ended.out


def test_a_queue_that_was_filled_in_becomes_training_data(queue: Path, tmp_path: Path, run: Run) -> None:
    rows = rows_of(queue)
    fill(queue, tmp_path / "done.csv", {0: "pet > dog", 1: "ok", 2: "?", 3: "cat; van", 4: " bus "})
    ended = run("review", "--apply", tmp_path / "done.csv", "-o", tmp_path / "more.csv")
    assert ended.code == 0, ended.err
    assert "4 documents of" in ended.out
    assert "3 labelled, 1 confirmed, 0 accepted, 76 skipped" in ended.out
    data = read(tmp_path / "more.csv")
    assert data.hierarchy == TREE
    assert data.names() == [["dog"], [rows[1]["suggestion"].rpartition(" > ")[2]], ["cat", "van"], ["bus"]]
    assert list(data.texts) == [rows[row]["text"] for row in (0, 1, 3, 4)]
    assert list(data.ids) == [rows[row]["id"] for row in (0, 1, 3, 4)]
    ended = run("fit", tmp_path / "more.csv", "-o", tmp_path / "m", "--model", "most_frequent")
    assert ended.code == 0, ended.err


def test_accepted_rows_are_taken_if_asked_for_and_corrected_ones_as_they_were(
    queue: Path, tmp_path: Path, run: Run
) -> None:
    rows = rows_of(queue)
    accepted = [at for at, row in enumerate(rows) if row["status"] == "accept"]
    assert len(accepted) > 3
    fill(queue, tmp_path / "done.csv", {accepted[0]: "bus", accepted[1]: "?"})
    ended = run("review", "--apply", tmp_path / "done.csv", "-o", tmp_path / "more.jsonl", "--accepted")
    assert f"1 labelled, 0 confirmed, {len(accepted) - 2} accepted" in ended.out
    data = read(tmp_path / "more.jsonl")
    found = dict(zip(data.ids, data.paths(), strict=True))
    assert found[rows[accepted[0]]["id"]] == ["car > bus"]
    assert rows[accepted[1]]["id"] not in found
    assert found[rows[accepted[2]]["id"]] == [rows[accepted[2]]["suggestion"]]


def test_a_typo_names_its_row_and_nothing_is_written(queue: Path, tmp_path: Path, run: Run) -> None:
    fill(queue, tmp_path / "done.csv", {0: "dog", 2: "dgo", 5: "cat; vann"})
    ended = run("review", "--apply", tmp_path / "done.csv", "-o", tmp_path / "more.csv")
    assert ended.code == 2
    assert f"{tmp_path / 'done.csv'}:4: unknown label 'dgo'; did you mean 'dog'" in ended.err
    assert "done.csv:7: unknown label 'vann'; did you mean 'van'" in ended.err
    assert "nothing was written" in ended.err
    assert not (tmp_path / "more.csv").exists()


def test_several_labels_may_be_joined_by_another_separator(queue: Path, tmp_path: Path, run: Run) -> None:
    fill(queue, tmp_path / "done.csv", {0: "cat+van"})
    ended = run("review", "--apply", tmp_path / "done.csv", "-o", tmp_path / "more.csv", "--label-sep", "+")
    assert ended.code == 0, ended.err
    assert read(tmp_path / "more.csv").names() == [["cat", "van"]]


def test_labels_are_checked_by_the_model_or_a_taxonomy_if_there_is_none_beside(
    folder: Path, queue: Path, tmp_path: Path, run: Run
) -> None:
    fill(queue, tmp_path / "done.csv", {0: "dog"})
    (tmp_path / "done.taxonomy.tsv").unlink()
    alone = run("review", "--apply", tmp_path / "done.csv", "-o", tmp_path / "more.csv")
    assert "no taxonomy beside it" in alone.err
    assert run("review", folder / "model", "--apply", tmp_path / "done.csv", "-o", tmp_path / "more.csv").code == 0
    assert (
        run(
            "review",
            "--apply",
            tmp_path / "done.csv",
            "-o",
            tmp_path / "o.csv",
            "--taxonomy",
            queue.with_name("queue.taxonomy.tsv"),
        ).code
        == 0
    )


def test_models_without_held_out_documents_promise_by_probabilities(folder: Path, tmp_path: Path, run: Run) -> None:
    fitted("zero_shot").save(tmp_path / "old")
    ended = run("review", tmp_path / "old", folder / "new.csv", "-o", tmp_path / "q.csv", "--precision", "0.3")
    assert ended.code == 0
    assert "by their probabilities alone" in ended.out


def test_cells_that_a_spreadsheet_would_run_come_back_as_they_were(folder: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "t.csv").write_text("id,text\na,=1+1 dog1\n")
    assert run("review", folder / "model", tmp_path / "t.csv", "-o", tmp_path / "q.csv").code == 0
    assert "'=1+1" in (tmp_path / "q.csv").read_text()
    fill(tmp_path / "q.csv", tmp_path / "done.csv", {0: "dog"})
    assert run("review", "--apply", tmp_path / "done.csv", "-o", tmp_path / "more.csv").code == 0
    assert list(read(tmp_path / "more.csv").texts) == ["=1+1 dog1"]


def test_mistakes_are_one_sentence(folder: Path, queue: Path, tmp_path: Path, run: Run) -> None:
    out = "-o", tmp_path / "x.csv"
    assert "expected a model and a file" in run("review", folder / "model", *out).err
    assert "leave it out" in run("review", folder / "model", folder / "new.csv", *out, "--accepted").err
    assert "reads" in run("review", folder / "model", folder / "new.csv", "--apply", queue, *out).err
    assert "no row has a label" in run("review", "--apply", queue, *out).err
    assert "choose another output" in run("review", "--apply", queue, "-o", queue).err
    assert "no column 'label'" in run("review", folder / "model", "--apply", folder / "new.csv", *out).err
    assert "has no further columns" in run("review", folder / "model", folder / "new.csv", "-o", tmp_path / "x.ft").err
    assert "precision = 2" in run("review", folder / "model", folder / "new.csv", *out, "--precision", "2").err


def test_labels_may_be_called_ok_and_hold_the_separator(tmp_path: Path, run: Run) -> None:
    taxonomy = tmp_path / "tax.tsv"
    taxonomy.write_text("path\nOK\nFine; well\nTennis\n")
    head = "id,text,label,status,priority,suggestion,p,alternatives\n"
    (tmp_path / "queue.csv").write_text(f"{head}1,a,OK,review,1,Tennis,0.5,\n2,b,Fine; well; Tennis,review,1,OK,0.5,\n")
    ended = run("review", "--apply", tmp_path / "queue.csv", "-o", tmp_path / "new.csv", "--taxonomy", taxonomy)
    assert ended.code == 0, ended.err
    assert "2 labelled, 0 confirmed" in ended.out
    assert read(tmp_path / "new.csv").names() == [["OK"], ["Fine; well", "Tennis"]]


QUEUE = "id,text,label,status,priority,suggestion,p,alternatives\n"


def test_an_answer_that_may_be_a_label_is_refused(tmp_path: Path, run: Run) -> None:
    taxonomy, target = tmp_path / "tax.tsv", tmp_path / "new.csv"
    taxonomy.write_text("path\nok\n?\nTennis\n")
    for answer in ("ok", "?"):
        (tmp_path / "queue.csv").write_text(f"{QUEUE}1,a,{answer},review,1,Tennis,0.5,\n")
        ended = run("review", "--apply", tmp_path / "queue.csv", "-o", target, "--taxonomy", taxonomy)
        assert ended.code == 2
        assert f"queue.csv:2: {answer!r} may be the label of that name or an answer" in ended.err
        assert not target.exists()
    (tmp_path / "queue.csv").write_text(f'{QUEUE}1,a,"""ok""",review,1,Tennis,0.5,\n2,b,OK,review,1,Tennis,0.5,\n')
    ended = run("review", "--apply", tmp_path / "queue.csv", "-o", target, "--taxonomy", taxonomy)
    assert "1 labelled, 1 confirmed" in ended.out, ended.err
    assert read(target).names() == [["ok"], ["Tennis"]]


def test_a_queue_without_the_columns_of_answers_is_refused(tmp_path: Path, run: Run) -> None:
    taxonomy, target = tmp_path / "tax.tsv", tmp_path / "new.csv"
    taxonomy.write_text("path\nGolf\nTennis\n")
    for queue, message in (
        ("id,text,label,status\n1,a,ok,review\n", "no column 'suggestion'"),
        ("id,text,label,suggestion\n1,a,,Golf\n", "no column 'status'"),
        (f"{QUEUE}1,a,ok,review,1,,0.5,\n", "'ok' stands for the suggestion, but the row has none"),
    ):
        (tmp_path / "queue.csv").write_text(queue)
        ended = run("review", "--apply", tmp_path / "queue.csv", "-o", target, "--taxonomy", taxonomy)
        assert ended.code == 2
        assert message in ended.err
        assert not target.exists()
