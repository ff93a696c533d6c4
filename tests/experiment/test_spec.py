from pathlib import Path

import pytest

from tests.experiment.small import SPEC, write_study
from treelabel import TreelabelError
from treelabel.experiment.plan import make_plan
from treelabel.experiment.spec import Spec
from treelabel.experiment.spec_reader import parse_spec, read_spec
from treelabel.experiment.units import parse_bytes, parse_seconds


def parsed(text: str) -> Spec:
    return parse_spec(text, Path("spec.toml"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("seeds = 2", "seedz = 2", "did you mean seeds?"),
        ('model = "linear"', 'model = "liner"', "did you mean linear?"),
        ("ngram_range = [1, 1]", "ngram_rang = [1, 1]", "did you mean ngram_range?"),
        ('"leaf_accuracy"', '"leaf_acuracy"', "did you mean leaf_accuracy"),
        ('"best_leaf"', '"best_leef"', "did you mean best_leaf"),
        (
            '"threshold@0.5"',
            '"threshold@nan"',
            "judge[1]: rule 'threshold@nan': t is nan, expected text, a finite number",
        ),
        ('"threshold@0.5"', '"threshold(t=[0.5, 1e999])"', "t[1] is inf, expected text, a finite number"),
        ('"best_leaf"', '"top_k@inf"', "k is inf, expected text, a finite number"),
        (
            'model = "linear"',
            'model = "linear"\ngrid = {C = [1]}\nselect = {metric = "hf1", rule = "threshold@-inf"}',
            "t is -inf, expected text, a finite number",
        ),
        ('train = "train.csv"', 'trian = "train.csv"', "did you mean train?"),
        ('train = "train.csv"', "read = {}", "expected train = and test =, or all ="),
        ("seeds = 2", "seeds = 0", "expected a whole number from 1 to 1000"),
        ('time_limit = "100s"', 'time_limit = "soon"', "such as 90, 90s, 10m or 2h"),
        ('[[judge]]\nrule = "best_leaf"', '[[judge]]\ndata = ["smal"]\nrule = "best_leaf"', "did you mean small?"),
        ('title = "Pets and plants"', "title = 3", "expected text"),
        ('model = "linear"', 'model = "linear"\ncommand = ["x"]', "expected model = or command ="),
        ('model = "linear"', 'model = "linear"\nselect = {metric = "hf1"}', "there is no grid"),
        ("[data.small]", "[data.small", "is not valid TOML"),
        ("seeds = 2", "seeds = []", "at least one, and none twice"),
        ("seeds = 2", "seeds = [3, 3]", "at least one, and none twice"),
        ("seeds = 2", "seeds = [-1]", "seeds[0] is -1, expected a whole number from 0 to 4294967295"),
        ('time_limit = "100s"', f'memory_limit = "{"9" * 400}GB"', "such as 500MB or 8GB"),
        ("ngram_range = [1, 1]", "C = 2020-01-01", "C is 2020-01-01, expected text, a finite number"),
        ("ngram_range = [1, 1]", "C = nan", "C is nan, expected text, a finite number"),
        ('model = "linear"', 'model = "linear"\ngrid = {C = []}', "grid.C has no values"),
        ('model = "linear"', 'model = "linear"\ngrid = {C = [1, 2]}\nparams_for.small = {C = 3}', "stands in the grid"),
        (
            'model = "linear"',
            f'model = "linear"\ngrid = {{C = {list(range(1, 99))}, cv = {list(range(2, 99))}}}',
            "the limit is 1,000",
        ),
        ('model = "linear"', 'model = "linear"\ngrid = {C = [1]}\nselect = [{metric = "hf1"}]', "expected a table of"),
        ('model = "most_frequent"', "command = []", "the command is empty"),
        ('model = "most_frequent"', 'command = ["{python}", "{trian}"]', "has {trian}; did you mean train?"),
        ('train = "train.csv"', 'train = "sample"', "expected all ="),
        ('train = "train.csv"', 'train = "train.csv"\nread = {lable = "x"}', "did you mean labels?"),
        ('train = "train.csv"', 'train = "train.csv"\nbin_edges = [10, 1]', "expected numbers of documents that grow"),
        ("[systems.linear]", '[systems."lin[x]"]', "but no brackets and commas"),
        ("[systems.linear]", '[systems."a\\u001b[2J"]', "has the name 'a\\x1b[2J'"),
        ("[systems.linear]", '[systems.linear]\nname = "x"', "title = is what tables show"),
        ('title = "Pets and plants"', 'text = "x"', "which means nothing here"),
        ('"hf1", "macro_f1"', '"hf1", "macro_f1_by_depth[1]"', "is a part"),
        ('metrics = ["hf1", "macro_f1"]', "metrics = []", "expected metrics ="),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(old: str, new: str, told: str) -> None:
    assert old in SPEC
    with pytest.raises(TreelabelError) as error:
        parsed(SPEC.replace(old, new, 1))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('[[tables]]\nname = "t"\ncolumns = [{metric = "hf1", rule = "best_leaf"}]', "judged under threshold@0.5"),
        ('[[tables]]\nname = "t"\ncolumns = [{metric = "icm"}]', "no [[judge]] has the metric 'icm'"),
        ('[[tables]]\nname = "t"\nsystems = ["linaer"]\ncolumns = [{metric = "hf1"}]', "did you mean linear?"),
        ('[[tables]]\nname = "t"', "needs columns ="),
        ('[[tables]]\nname = "t"\ncolumns = {metric = "hf1"}', "expected a list of columns"),
        ('[[tables]]\nname = "t"\ncolumns = [{metric = "hf1"}]\npublished.small = 3', "expected systems"),
        ('[[tables]]\nname = "t"\ncolumns = [{metric = "hf1"}]\npublished.a.b = ["1", "2"]', "at most 1 numbers"),
        ('[[tables]]\nname = "t"\ncolumns = [{metric = "hf1"}]\n' * 2, "the table t stands there twice"),
        ('[[figures]]\nname = "f"\nkind = "label_distribution"\n' * 2, "the figure f stands there twice"),
        (
            '[[claims]]\nname = "c"\ntext = "."\nleft = [{system = "linear", metric = "hf1"}]\nright = {value = 0.5}',
            "expected a table of settings",
        ),
        ('[[figures]]\nname = "f"\nkind = "parts"', "needs metric ="),
        ('[[figures]]\nname = "f"\nkind = "pats"', "expected 'parts'"),
        (
            '[[claims]]\nname = "c"\ntext = "."\nleft = {system = "liner", metric = "hf1"}\nright = {value = 0.5}',
            "did you mean linear?",
        ),
        (
            '[[claims]]\nname = "c"\ntext = "."\nleft = {system = "linear"}\nright = {value = 0.5}',
            "a side of a claim needs metric =",
        ),
        (
            '[[claims]]\nname = "c"\ntext = "."\nleft = {metric = "hf1"}\nright = {value = 0.5}',
            "has one of system, best_of",
        ),
        ('[[claims]]\nname = "c"\ntext = "."\nleft = {value = 1.0}', "lacks right ="),
    ],
)
def test_tables_figures_and_claims_name_what_is_there(more: str, told: str) -> None:
    with pytest.raises(TreelabelError) as error:
        parsed(f"{SPEC}\n{more}\n")
    assert told in str(error.value)


def test_a_grid_that_nothing_chooses_from_is_a_row_each(tmp_path: Path) -> None:
    text = (
        SPEC.replace(
            'title = "linear"\nmodel = "linear"', 'title = "linear"\ngrid = {C = [0.5, 2.0]}\nmodel = "linear"'
        )
        + '\n[[tables]]\nname = "t"\nsystems = ["linear"]\ncolumns = [{metric = "hf1"}]\n'
    )
    spec = read_spec(write_study(tmp_path, text))
    assert list(spec.systems) == ["linear[C=0.5]", "linear[C=2.0]", "frequent"]
    assert spec.systems["linear[C=2.0]"].params["C"] == 2.0
    claim = '[[claims]]\nname = "c"\ntext = "."\nright = {{value = 0.5}}\nleft = {{{side}, metric = "hf1"}}\n'
    sides = parsed(text + claim.format(side='best_of = ["linear", "frequent"]')).claims[0].left
    assert sides.best_of == ("linear[C=0.5]", "linear[C=2.0]", "frequent")
    assert parsed(text + claim.format(side='system = "linear[C=0.5]"')).claims[0].left.system == "linear[C=0.5]"
    with pytest.raises(TreelabelError, match=r"is a grid; name one of linear\[C=0.5\]"):
        parsed(text + claim.format(side='system = "linear"'))
    assert spec.tables[0].systems == ("linear[C=0.5]", "linear[C=2.0]")
    assert {cell.system for cell in make_plan(spec, systems=["linear"]).cells} == {"linear[C=0.5]", "linear[C=2.0]"}


def test_the_first_seed_of_all_comes_before_the_second_of_any(tmp_path: Path) -> None:
    plan = make_plan(read_spec(write_study(tmp_path)))
    assert [(cell.system, cell.seed) for cell in plan.cells] == [("linear", 0), ("frequent", 0), ("linear", 1)]
    assert [len(cells) for cells in plan.rounds] == [2, 1]


def test_a_key_depends_on_data_and_parameters_and_on_no_title(tmp_path: Path) -> None:
    def keys(text: str) -> list[str]:
        return [cell.key for cell in make_plan(read_spec(write_study(tmp_path, text))).cells]

    before = keys(SPEC)
    assert keys(SPEC.replace('title = "linear"', 'title = "ours"')) == before
    assert keys(SPEC.replace("[3, 3]", "[3, 4]"))[1] == before[1]
    assert keys(SPEC.replace("[3, 3]", "[3, 4]"))[0] != before[0]
    file = write_study(tmp_path)
    (tmp_path / "test.csv").write_text((tmp_path / "test.csv").read_text().replace("bark", "woof"))
    assert not set(before) & {cell.key for cell in make_plan(read_spec(file)).cells}


def test_data_that_are_not_there_are_left_out_with_the_place_looked_at(tmp_path: Path) -> None:
    spec = read_spec(write_study(tmp_path, SPEC + '\n[data.other]\ntrain = "no/train.csv"\ntest = "no/test.csv"\n'))
    plan = make_plan(spec)
    assert {cell.data for cell in plan.cells} == {"small"}
    assert str(tmp_path) in plan.missing["other"]


@pytest.mark.parametrize("text", ["", "ten", "-3s", "3x", "1e3", True, "0"])
def test_amounts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(TreelabelError, match="expected"):
        parse_seconds(text)
    with pytest.raises(TreelabelError, match="expected"):
        parse_bytes(text)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TreelabelError, match=r"s\.toml: is not UTF-8"):
        read_spec(tmp_path / "s.toml")
    with pytest.raises(TreelabelError, match=r"no\.toml"):
        read_spec(tmp_path / "no.toml")
