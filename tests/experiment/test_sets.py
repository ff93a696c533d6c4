from pathlib import Path

import pytest

from treelabel import TreelabelError
from treelabel.experiment.data_sets import load_parts, params_hash, with_files
from treelabel.experiment.spec import DataSpec


def test_a_set_is_cut_at_a_depth() -> None:
    whole, cut = (load_parts(DataSpec("nouns", all="sample", depth=depth), Path(), 0) for depth in (None, 2))
    h = cut.train.hierarchy
    assert h.max_depth == 2 < whole.train.hierarchy.max_depth
    assert h.names == cut.test.hierarchy.names
    assert list(cut.test.ids) == list(whole.test.ids)
    path = whole.test.paths()[0][0].split(" > ")
    assert cut.test.paths()[0] == [" > ".join(path[:2])]


def test_files_in_parameters_are_found_beside_the_spec(tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("A\tthe first letter\n")
    params = {"descriptions": "names.tsv", "C": 2.0}
    assert with_files(params, tmp_path) == {"descriptions": str(tmp_path / "names.tsv"), "C": 2.0}
    before = params_hash(params, tmp_path)
    (tmp_path / "names.tsv").write_text("A\tthe very first letter\n")
    assert before != params_hash(params, tmp_path) != []
    with pytest.raises(TreelabelError, match=r"missing\.tsv: not found"):
        with_files({"descriptions": "missing.tsv"}, tmp_path)
    assert params_hash({"descriptions": "missing.tsv"}, tmp_path) == []
