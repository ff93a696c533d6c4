"""Files that grow under a temporary name: what a kill leaves, what a later run makes of it."""

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from treelabel import TreelabelError
from treelabel.core.append import AppendFile, open_append


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def leave(target: Path, about: dict[str, str], *parts: bytes) -> None:
    """Write parts, committing each, and end without ceremony."""
    with suppress(KeyboardInterrupt), open_append(target, about, resume=True) as file:
        for part in parts:
            file.write(part)
            file.commit(parts=file.state.get("parts", 0) + 1)
        raise KeyboardInterrupt


def test_a_later_run_goes_on_behind_what_was_committed(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    leave(target, {"of": "a"}, b"one ", b"two ")
    # What was written behind the last commit may be cut anywhere.
    with (tmp_path / "out.txt.partial").open("ab") as stream:
        stream.write(b"thr")
    with open_append(target, {"of": "a"}, resume=True) as file:
        assert file.state == {"parts": 2}
        file.write(b"three")
        file.keep()
    assert target.read_bytes() == b"one two three"
    assert names(tmp_path) == ["out.txt"]


def test_without_being_asked_a_run_starts_over_and_leaves_nothing_if_it_fails(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    leave(target, {}, b"old")
    with open_append(target, {}) as file:
        assert file.state == {}
        file.write(b"new")
        file.keep()
    assert target.read_bytes() == b"new"
    with suppress(TreelabelError), open_append(target, {}) as file:
        file.write(b"half")
        file.commit(rows=1)
        raise TreelabelError("bad input")
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["out.txt"]


def test_work_on_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    leave(target, {"input": "a.csv"}, b"one")
    other = open_append(target, {"input": "b.csv"}, resume=True)
    with pytest.raises(TreelabelError, match=r"begun with another input: 'a\.csv', now 'b\.csv'"), other:
        pass
    assert (tmp_path / "out.txt.partial").read_bytes() == b"one"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"about": {}, "state": {}, "size": 99}'])
def test_a_journal_that_says_nothing_useful_is_no_reason_to_fail(tmp_path: Path, damage: bytes) -> None:
    target = tmp_path / "out.txt"
    leave(target, {}, b"one")
    (tmp_path / "out.txt.partial.json").write_bytes(damage)
    with open_append(target, {}, resume=True) as file:
        assert (file.state, file.size) == ({}, 0)
        file.write(b"anew")
        file.keep()
    assert target.read_bytes() == b"anew"


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    code = f"""
from treelabel.core.append import open_append
with open_append({str(tmp_path / "out.txt")!r}, {{}}):
    print("ready", flush=True)
    input()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        mine = open_append(tmp_path / "out.txt", {})
        with pytest.raises(TreelabelError, match="another process is writing it"), mine:
            pass
        other.communicate("\n")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match="is a folder"), open_append(tmp_path, {}):
        pass


def test_a_file_of_somebody_else_under_the_temporary_name_is_left_alone(tmp_path: Path) -> None:
    """The input of a command may be called so, or anything that a user has."""
    other = tmp_path / "a.txt.partial"
    other.write_bytes(b"mine")
    with pytest.raises(TreelabelError, match=r"a\.txt\.partial is there already"), open_append(tmp_path / "a.txt", {}):
        pass
    assert other.read_bytes() == b"mine"
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("planted", ["a.txt.partial", "a.txt.partial.json.new"])
def test_links_under_the_temporary_names_are_not_followed(tmp_path: Path, planted: str) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / planted).symlink_to("mine")
    (tmp_path / "a.txt.partial.json").write_text('{"about": {"version": 1}, "state": {"done": 9}, "size": 0}')
    try:
        with open_append(tmp_path / "a.txt", {}, resume=True) as file:
            file.write(b"new")
            file.commit()
            file.keep()
    except TreelabelError as error:
        assert planted == "a.txt.partial"
        assert "a.txt.partial is there already" in str(error)  # noqa: PT017
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_what_an_earlier_run_was_sure_of_is_forgotten_when_another_starts_over(tmp_path: Path) -> None:
    """Else a run that is killed before its first commit would be gone on with as if it were the earlier one."""
    target = tmp_path / "a.txt"
    first = AppendFile(target, {"of": "one"})
    first.open(resume=False)
    first.write(b"1111")
    first.commit(done=1)
    first.close()
    second = AppendFile(target, {"of": "two"})
    second.open(resume=False)
    second.write(b"22222222")
    second.close()
    third = AppendFile(target, {"of": "one"})
    with pytest.raises(TreelabelError, match="begun with another of"):
        third.open(resume=True)
    third.close()


def test_nothing_is_left_where_there_is_no_room_even_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, text: str, **_: object) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(TreelabelError, match="No space left on device"), open_append(tmp_path / "out.txt", {}):
        pass
    assert names(tmp_path) == []


def test_what_is_done_is_left_where_the_disk_is_full(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with suppress(TreelabelError), open_append(target, {"of": "a"}) as file:
        file.write(b"one")
        file.commit(rows=1)
        raise OSError(errno.ENOSPC, "No space left on device", str(target))
    with open_append(target, {"of": "a"}, resume=True) as file:
        assert (file.state, file.size) == ({"rows": 1}, 3)
        file.keep()
    assert target.read_bytes() == b"one"


def test_what_nobody_could_go_on_with_is_not_left(tmp_path: Path) -> None:
    with suppress(KeyboardInterrupt), open_append(tmp_path / "out.txt", {}) as file:
        file.write(b"half")
        file.commit(rows=1)
        raise KeyboardInterrupt
    assert names(tmp_path) == []
