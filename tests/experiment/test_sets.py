from pathlib import Path

from treelabel.experiment.sets import load_parts
from treelabel.experiment.spec import DataSpec


def test_a_set_is_cut_at_a_depth() -> None:
    whole, cut = (load_parts(DataSpec("nouns", all="sample", depth=depth), Path(), 0) for depth in (None, 2))
    h = cut.train.hierarchy
    assert h.max_depth == 2 < whole.train.hierarchy.max_depth
    assert h.names == cut.test.hierarchy.names
    assert list(cut.test.ids) == list(whole.test.ids)
    path = whole.test.paths()[0][0].split(" > ")
    assert cut.test.paths()[0] == [" > ".join(path[:2])]
