import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from treelabel.core.child_python import child_python
from treelabel.core.errors import TreelabelError
from treelabel.serve.journal import Journal, read_journal
from treelabel.serve.problems import ProblemError


def test_entries_of_many_requests_are_written_in_order(tmp_path: Path) -> None:
    async def work() -> int:
        journal = Journal(tmp_path / "new" / "journal.jsonl")
        await asyncio.gather(*(journal.append([{"id": 2 * each}, {"id": 2 * each + 1}]) for each in range(50)))
        journal.close()
        return journal.lines

    assert asyncio.run(work()) == 100
    assert [entry["id"] for entry in read_journal(tmp_path / "new" / "journal.jsonl")] == list(range(100))
    assert len(read_journal(tmp_path / "new" / "journal.jsonl", 3)) == 3
    assert (tmp_path / "new" / "journal.jsonl").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("torn", [b'{"id": 2', b"{", b"x" * 200_000])
def test_a_torn_line_is_removed_and_reported(tmp_path: Path, torn: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"id": 1}\n' + torn)
    journal = Journal(path)
    assert (journal.lines, journal.healed, path.read_bytes()) == (1, len(torn), b'{"id": 1}\n')
    assert f"{len(torn)} bytes" in caplog.text
    asyncio.run(journal.append([{"id": 2}]))
    journal.close()
    assert read_journal(path) == [{"id": 1}, {"id": 2}]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"id": 1}\nno\n{"id": 2}\n')
    with pytest.raises(TreelabelError, match=r"journal\.jsonl:2: damaged"):
        Journal(tmp_path / "journal.jsonl")


def test_two_services_do_not_write_one_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(TreelabelError, match="another service"):
        Journal(tmp_path / "journal.jsonl")
    journal.close()


def test_what_cannot_be_written_is_taken_back_and_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    asyncio.run(journal.append([{"id": 1}]))
    write = os.write

    def fill_disk(handle: int, data: memoryview) -> int:
        if len(data) > 4:
            return write(handle, data[:4])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fill_disk)
        with pytest.raises(ProblemError, match="507"):
            asyncio.run(journal.append([{"id": 22222}]))
    asyncio.run(journal.append([{"id": 3}]))
    journal.close()
    assert [entry["id"] for entry in read_journal(tmp_path / "journal.jsonl")] == [1, 3]


WRITER = """
import asyncio, sys
from pathlib import Path
from treelabel.serve.journal import Journal
async def work():
    journal = Journal(Path(sys.argv[1]))
    count = journal.lines
    while True:
        await journal.append([{"id": count, "text": "x" * 3000}])
        print(count, flush=True)
        count += 1
asyncio.run(work())
"""


@pytest.mark.slow
def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    told = -1
    for _ in range(3):
        with subprocess.Popen(child_python("-c", WRITER, str(path)), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(20):
                told = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
    complete = path.read_bytes().split(b"\n")[:-1]
    assert [json.loads(line)["id"] for line in complete][: told + 1] == list(range(told + 1))
