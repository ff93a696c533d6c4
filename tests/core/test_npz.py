"""Arrays that are written without pickle."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

import treelabel
from treelabel import TreelabelError
from treelabel.core.npz import open_npz, write_arrays


@pytest.mark.parametrize("compress", [False, True])
def test_a_file_holds_the_arrays_and_nothing_else(tmp_path: Path, compress: bool) -> None:
    file = tmp_path / "a.npz"
    write_arrays(file, {"weights": np.arange(3.0), "names": np.array(["x", "yz"])}, compress)
    assert zipfile.ZipFile(file).namelist() == ["weights.npy", "names.npy"]
    with open_npz(file, "arrays") as stored:
        assert stored["weights"].tolist() == [0, 1, 2]


def test_an_array_of_objects_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match="cannot store labels: expected plain numbers"):
        write_arrays(tmp_path / "a.npz", {"labels": np.array([{}], object)})
    assert not list(tmp_path.iterdir())


def test_arrays_are_written_in_one_place() -> None:
    folder = Path(treelabel.__file__).parent
    writers = {str(file.relative_to(folder)) for file in folder.rglob("*.py") if "np.savez" in file.read_text("utf-8")}
    assert writers == {"core/npz.py"}
