"""inspect with findings and --fix, fit's line about them, split, convert --without and audit on the command line."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import Run, put
from treelabel import read

WARTS = """text,category
woof,Pet > Dog
WOOF,pet > dog
woof,Pet > Cat
,Pet > Dog
meow,Pet &amp; Co > Cat
purr,Pet > Cat
"""


@pytest.fixture
def warts(tmp_path: Path) -> Path:
    return put(tmp_path, "warts.csv", WARTS)


def test_inspect_tells_findings_with_examples_and_remedies(warts: Path, run: Run) -> None:
    out = run("inspect", warts).out
    assert "serious: 7 labels are spellings of 5" in out
    assert "  line 2: 'Pet > Dog', but line 4: 'Pet > Cat' for 'woof'" in out
    assert "  -> --fix OUT gives each its most frequent spelling" in out
    kinds = {finding["kind"]: finding for finding in run("inspect", warts, "--json").json["findings"]}
    assert {"spellings", "contradictions", "empty_texts"} <= set(kinds)
    assert kinds["empty_texts"]["examples"] == ["line 5: 'Pet > Dog'"]


def test_inspect_says_that_nothing_looks_wrong(tmp_path: Path, run: Run) -> None:
    rows = "".join(f"text {number},{'xy'[number % 2]}\n" for number in range(12))
    assert "nothing looks wrong" in run("inspect", put(tmp_path, "t.csv", f"text,label\n{rows}")).out


def test_fix_writes_a_new_file_and_says_what_it_did(warts: Path, tmp_path: Path, run: Run) -> None:
    before, target = warts.read_bytes(), tmp_path / "fixed.csv"
    out = run("inspect", warts, "--fix", target).out
    assert "left out 1 document without text" in out
    assert "left out 1 copy of a text with the same labels" in out
    assert f"wrote {target}: 4 of 6 documents" in out
    assert warts.read_bytes() == before
    fixed = read(target)
    assert fixed.paths() == [["Pet > Dog"], ["Pet > Cat"], ["Pet & Co > Cat"], ["Pet > Cat"]]
    assert not {"spellings", "empty_texts", "copies"} & {
        f["kind"] for f in run("inspect", target, "--json").json["findings"]
    }
    told = run("inspect", warts, "--fix", tmp_path / "again.jsonl", "--json").json
    assert told["fixed"][-1].startswith("wrote ")


def test_fix_never_replaces_a_file(warts: Path, tmp_path: Path, run: Run) -> None:
    other = put(tmp_path, "other.csv", "mine")
    for target, message in ((warts, "would be replaced"), (other, "is there already"), (tmp_path / "x.y", "ending")):
        ended = run("inspect", warts, "--fix", target)
        assert (ended.code, message in ended.err) == (2, True)
    assert (warts.read_text(), other.read_text()) == (WARTS, "mine")
    taxonomy = put(tmp_path, "t.taxonomy.tsv", "A\tB\n")
    assert "holds no documents, so --fix" in run("inspect", taxonomy, "--fix", tmp_path / "new.csv").err


def test_fit_repeats_the_serious_findings_in_one_line(warts: Path, tmp_path: Path, run: Run) -> None:
    valid = put(tmp_path, "valid.csv", "text,category\nWoof,Pet > Dog\n")
    ended = run("fit", warts, "-o", tmp_path / "model", "--model", "most_frequent", "--valid", valid)
    assert ended.code == 0
    line = next(line for line in ended.err.splitlines() if "says more" in line)
    assert "1 of 1 texts is in the training data, too" in line
    assert "1 text has different labels in different rows (3 documents)" in line
    assert line.endswith(f"treelabel inspect {warts} says more")


def test_fit_says_nothing_of_clean_data(tmp_path: Path, run: Run) -> None:
    rows = "".join(f"text {number},{'xy'[number % 2]}\n" for number in range(12))
    file = put(tmp_path, "t.csv", f"text,label\n{rows}")
    ended = run("fit", file, "-o", tmp_path / "model", "--model", "most_frequent")
    assert ended.code == 0
    (line,) = ended.err.splitlines()
    assert line.startswith("next: treelabel evaluate ")


def test_split_keeps_duplicates_together_unless_told_otherwise(tmp_path: Path, run: Run) -> None:
    rows = "".join(f"text {number // 2},{'xy'[number % 4 // 2]}\n" for number in range(80))
    file = put(tmp_path, "t.csv", f"text,label\n{rows}")

    def shared(*options: str) -> int:
        folder = tmp_path / f"parts{len(options)}"
        assert run("split", file, folder, "--parts", "a=0.5,b=0.5", *options).code == 0
        return len(set(read(folder / "a.jsonl").texts) & set(read(folder / "b.jsonl").texts))

    assert shared() == 0
    assert shared("--no-keep-duplicates") > 0


def test_convert_leaves_out_what_is_in_another_file(tmp_path: Path, run: Run) -> None:
    train = put(tmp_path, "train.csv", "text,label\nWoof,dog\n")
    test = put(tmp_path, "test.csv", "text,label\nwoof,dog\nmeow,cat\n")
    target = tmp_path / "clean.csv"
    assert "1 documents" in run("convert", test, target, "--without", train).out
    assert list(read(target).texts) == ["meow"]


def test_audit_lists_what_looks_wrong(tmp_path: Path, run: Run) -> None:
    words = {"pet > dog": "woof bark", "pet > cat": "meow purr", "food > cake": "sugar oven"}
    rows = [f"{text} {label[-1]}{number},{label}" for label, text in words.items() for number in range(10)]
    rows.append("meow purr indeed,food > cake")
    file = put(tmp_path, "t.csv", "text,label\n" + "\n".join(rows) + "\n")
    shown = run("audit", file, "--cv", "3", "--top", "1")
    assert "line 32: food > cake" in shown.out
    assert "-> pet > cat" in shown.out
    target = tmp_path / "suspects.csv"
    assert str(target) in run("audit", file, "--cv", "3", "--top", "4", "-o", target).out
    with target.open(newline="") as stream:
        listed = list(csv.DictReader(stream))
    assert len(listed) == 4
    assert {"id", "text", "labels", "line", "given", "suggested", "p_given", "p_suggested", "score", "reason"} <= set(
        listed[0]
    )
    assert (listed[0]["line"], listed[0]["suggested"]) == ("32", "pet > cat")
    told = run("audit", file, "--cv", "3", "--top", "1", "--json").json
    assert (told["documents"], len(told["suspects"]), told["suspects"][0]["line"]) == (31, 1, 32)
    assert json.dumps(told)


def test_audit_refuses_what_cannot_be_written(warts: Path, tmp_path: Path, run: Run) -> None:
    for target, message in (
        (warts, "would be replaced"),
        (tmp_path / "a.ft", "no place for"),
        (tmp_path / "a.b", "ending"),
    ):
        ended = run("audit", warts, "-o", target)
        assert (ended.code, message in ended.err) == (2, True)
    assert "too few" in run("audit", put(tmp_path, "one.csv", "text,label\na,x\na,y\n"), "--cv", "2").err


def test_labels_that_training_does_not_have_are_findings(tmp_path: Path, run: Run) -> None:
    train = put(tmp_path, "train.csv", "text,label\n" + "woof,Pet > Dog\nmeow,Pet > Cat\n" * 6)
    put(tmp_path, "train.taxonomy.tsv", "path\nPet > Dog\nPet > Cat\n")
    test = put(tmp_path, "test.csv", "body,kind,sort\nbark,PET,Dog\npurr,Pet,Cat\nmoo,Farm,Cow\n")
    named = ("--text", "body", "--labels", "kind,sort", "--train", train)
    ended = run("inspect", test, *named, "--fix", tmp_path / "fixed.csv")
    assert ended.code == 0, ended.err
    assert "labels have no text in the training data" in ended.out
    assert (tmp_path / "fixed.csv").read_text() == "body,kind,sort\nbark,Pet,Dog\npurr,Pet,Cat\nmoo,Farm,Cow\n"
    put(tmp_path, "tax.tsv", "path\nPet > Dog\nPet > Cat\n")
    given = run("inspect", test, *named, "--taxonomy", tmp_path / "tax.tsv")
    assert given.code == 2
    assert "unknown path 'PET > Dog'" in given.err


def test_convert_does_not_write_over_what_it_reads(tmp_path: Path, run: Run) -> None:
    file = put(tmp_path, "t.csv", "text,label,note\na,x,1\na,x,2\n")
    before = file.read_bytes()
    ended = run("convert", file, file, "--deduplicate")
    assert ended.code == 2
    assert "is what is to be read, and would be replaced" in ended.err
    assert file.read_bytes() == before


def test_evaluate_wants_a_file_for_each_table(tmp_path: Path, run: Run) -> None:
    file = put(tmp_path, "t.csv", "text,label\na,x\nb,y\n")
    same = tmp_path / "out.csv"
    ended = run("evaluate", file, file, "--errors", same, "--by-label-output", same)
    assert ended.code == 2
    assert "name the same file" in ended.err


# What is there already


@pytest.mark.parametrize("command", ["convert", "inspect"])
def test_a_taxonomy_that_another_file_or_a_person_wrote_stays(tmp_path: Path, run: Run, command: str) -> None:
    """The hierarchy of goods.csv needs .json, and the .tsv that stands there would be found first."""
    source = put(tmp_path, "in.csv", "text,label\nt,A > x\nu,B > x\nv,A > y\nw,B > z\n")
    mine = put(tmp_path, "goods.taxonomy.tsv", "C\tx\nC\ty\n")
    target = tmp_path / "goods.csv"
    given = (command, source, target) if command == "convert" else (command, source, "--fix", target)
    ended = run(*given)
    assert ended.code == 2
    assert "goods.taxonomy.tsv is there already and holds another hierarchy" in ended.err
    assert mine.read_text() == "C\tx\nC\ty\n"
    assert not target.exists()
    assert run(*given, "--force").code == 0
    assert read(target).paths() == read(source).paths()
    assert "is there already" in run(*given).err


def test_paths_are_not_moved_by_a_taxonomy_that_stands_beside_them(tmp_path: Path, run: Run) -> None:
    file = put(tmp_path, "goods.csv", "text,label\nt,A > x\nu,A > y\nv,B\n")
    for taxonomy in ("C > x\nC > y\nB\n", "Z > A > x\nZ > A > y\nB\n", "A > x\nA > y\nC > B\n"):
        beside = put(tmp_path, "goods.taxonomy.txt", taxonomy)
        ended = run("inspect", file)
        assert ended.code == 2
        assert f"in {beside}" in ended.err
    put(tmp_path, "goods.taxonomy.txt", "A > x\nA > y\nB\nD > w\n")
    assert read(file).paths() == [["A > x"], ["A > y"], ["B"]]


def test_split_looks_at_every_taxonomy_that_its_parts_would_be_read_with(tmp_path: Path, run: Run) -> None:
    file = put(tmp_path, "in.csv", "text,label\n" + "".join(f"t{row},{'AB'[row % 2]} > x\n" for row in range(8)))
    mine = put(tmp_path, "train.taxonomy.csv", "parent,child\nC,x\n")
    ended = run("split", file, tmp_path, "--parts", "train=0.5,test=0.5")
    assert ended.code == 2
    assert f"{mine} is there already" in ended.err
    assert not (tmp_path / "train.jsonl").exists()


def test_split_changes_no_other_file_of_its_folder(tmp_path: Path, run: Run) -> None:
    file = put(tmp_path, "in.csv", "text,label\n" + "".join(f"t{row},{'AB'[row % 2]} > {row}\n" for row in range(8)))
    names = put(tmp_path, "names.csv", "text,label\nu,1\nv,3\n")
    paths = put(tmp_path, "paths.csv", "text,label\nu,C > 1\nv,C > 3\n")
    assert run("split", file, tmp_path, "--parts", "train=0.5,test=0.5").code == 0
    assert read(names).paths() == [["1"], ["3"]]
    assert read(paths).paths() == [["C > 1"], ["C > 3"]]
    parts = [read(tmp_path / f"{part}.jsonl") for part in ("train", "test")]
    assert [part.hierarchy for part in parts] == [read(file).hierarchy] * 2
    assert not (tmp_path / "taxonomy.tsv").exists()


def test_a_queue_that_was_filled_in_is_not_replaced(tmp_path: Path, run: Run) -> None:
    queue = put(tmp_path, "queue.csv", "filled in")
    ended = run("review", tmp_path, put(tmp_path, "new.csv", "text\na\n"), "-o", queue)
    assert "is there already; choose another name, or replace it with --force" in ended.err
    assert queue.read_text() == "filled in"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.slow
def test_a_full_device_is_one_sentence(tmp_path: Path) -> None:
    file = put(tmp_path, "in.csv", "text,label\nt,A\nu,B\n")
    program = [sys.executable, "-m", "treelabel"]
    for arguments in (["inspect", str(file)], ["convert", str(file), "-"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*program, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        told = "treelabel: standard output: cannot be written: No space left on device\n"
        assert (done.returncode, done.stderr) == (2, told)
    with open("/dev/full", "w") as full:
        done = subprocess.run([*program, "inspect", "nowhere"], stderr=full, text=True, check=False)
    assert done.returncode == 2
    for name in ("out.jsonl", "out.parquet"):
        (tmp_path / name).symlink_to("/dev/full")
        done = subprocess.run([*program, "convert", file, tmp_path / name], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "is not an ordinary file" in done.stderr


@pytest.mark.slow
def test_a_working_folder_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from treelabel.cli import main; main()"
    for arguments in (["sample", "x.csv"], ["inspect", "x.csv"], ["fit", "x.csv", "-o", "model"]):
        gone.mkdir(exist_ok=True)
        given = [sys.executable, "-P", "-c", code, *arguments]
        done = subprocess.run(given, cwd=gone, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "the working folder is gone" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_names_are_not_written_beside_a_taxonomy_that_reads_them_otherwise(tmp_path: Path, run: Run) -> None:
    source = put(tmp_path, "t.csv", "text,label\nt,A > x\nu,A > y\n")
    put(tmp_path, "t3.taxonomy.tsv", "A\tx\nZ\ty\n")
    options = "--labels-as", "names", "--no-write-taxonomy"
    ended = run("convert", source, tmp_path / "t3.csv", *options)
    assert ended.code == 2
    assert "t3.taxonomy.tsv is there already and holds another hierarchy" in ended.err
    assert not (tmp_path / "t3.csv").exists()
    assert run("convert", source, tmp_path / "t4.csv", *options).code == 0


def test_names_with_a_separator_in_them_are_names_of_the_taxonomy_beside(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "Medical\tMedical/Senior\nMedical\tMedical/Child\nLaw\tLaw/Tax\n")
    file = put(tmp_path, "t.csv", "text,label\na,Medical/Senior\nb,Medical/Child\nc,Law/Tax\n")
    assert read(file).paths() == [["Medical > Medical/Senior"], ["Medical > Medical/Child"], ["Law > Law/Tax"]]
