"""Run the code blocks of a page, in order, in one folder and one namespace."""

import doctest
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import tomllib
import urllib.request
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from tests.helpers import Ended, Run
from treelabel.core.child_python import child_python

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
# What Sphinx itself does with a fence.
DIRECTIVE = re.compile(r"\{[\w:-]+\}")
# Where pages say that the service listens; it listens on a free port.
ADDRESS = "http://127.0.0.1:8080"
# The first line of a block that is a file: "# study.toml".
FILE_NAME = re.compile(r"# (\S+\.toml)\n")


class Block(NamedTuple):
    """A fenced block, and the line that it begins at."""

    kind: str
    content: str
    line: int


def blocks_of(page: Path) -> Iterator[Block]:
    """List the code blocks of a page."""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        assert token.type != "code_block", f"{page.name}:{(token.map or [0])[0] + 1}: fence this block"
        if token.type == "fence" and not DIRECTIVE.match(token.info):
            yield Block(token.info.strip(), token.content, (token.map or [0])[0] + 1)


def commands_of(block: Block) -> Iterator[tuple[list[str], str]]:
    """Yield each command as words, and what the page says it prints."""
    joined = block.content.replace("\\\n", " ")
    assert joined.startswith("$ "), f"line {block.line}: a console block begins with a command"
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield shlex.split(command, comments=True), output


class PageRun:
    """Runs the blocks of a page in the working folder.

    Parameters
    ----------
    page
        The page, which messages name.
    run
        Calls the command line in this process.
    models
        A folder for fitted models: what another page has fitted by the same command from the same files is not fitted
        again.
    stack
        Ends the services that the page starts.
    """

    def __init__(self, page: Path, run: Run, models: Path, stack: ExitStack) -> None:
        self.page = page
        self.run = run
        self.models = models
        self.stack = stack
        self.address = ADDRESS
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run_block(self, block: Block) -> None:
        """Run a block of any kind but text."""
        if block.kind == "python":
            self.run_python(block)
        elif block.kind == "console":
            self.run_console(block)
        elif block.kind == "json":
            json.loads(block.content)
        elif block.kind == "toml":
            tomllib.loads(block.content)
            if name := FILE_NAME.match(block.content):
                Path(name[1]).write_text(block.content, encoding="utf-8")
        else:
            raise AssertionError(f"{self.page.name}:{block.line}: a block of {block.kind or 'nothing'}")

    def run_python(self, block: Block) -> None:
        """Run a block as a doctest, or as a script if it has no prompts."""
        content = block.content.replace(ADDRESS, self.address)
        if ">>>" not in content:
            exec(compile(content, f"{self.page.name}:{block.line}", "exec", dont_inherit=True), self.names)
            return
        test = doctest.DocTestParser().get_doctest(content, self.names, self.page.name, str(self.page), block.line)
        report: list[str] = []
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
        self.names.update(test.globs)
        assert not report, "".join(report)

    def run_console(self, block: Block) -> None:
        """Run the commands of a block, and compare what they print where the page shows it."""
        for (program, *arguments), shown in commands_of(block):
            where = f"{self.page.name}:{block.line}"
            assert program in ("treelabel", "curl"), f"{where}: {program} cannot run here; such blocks are text"
            if program == "curl":
                answer = send([word.replace(ADDRESS, self.address) for word in arguments])
                assert same("".join(shown.split()), "".join(answer.split())), f"{where}: {arguments} answered\n{answer}"
            elif arguments[-1] == "&":
                self.address = self.stack.enter_context(running_service(arguments[:-1]))
            else:
                self.run_command(arguments, shown, where)

    def run_command(self, arguments: list[str], shown: str, where: str) -> None:
        """Run a command of treelabel, which ends well unless the page shows its error."""
        ended = self.fit(arguments) if arguments[0] == "fit" else self.run(*arguments)
        well = ended.code in (0, 3)
        assert well or shown.startswith("treelabel: "), f"{where}: {ended.err}"
        printed = ended.out if well else ended.err
        assert same(shown.strip(), printed.strip()), f"{where}: {arguments} printed\n{printed}\nexpected\n{shown}"

    def fit(self, arguments: list[str]) -> Ended:
        """Fit a model, or copy the one that the same command made of the same files."""
        folder = Path(arguments[1]).parent
        hashed = hashlib.sha256(repr(arguments).encode())
        for path in sorted(folder.iterdir()):
            hashed.update(path.read_bytes() if path.is_file() else b"")
        kept, output = self.models / hashed.hexdigest(), Path(arguments[arguments.index("-o") + 1])
        if not kept.exists() or output.exists():
            ended = self.run(*arguments)
            if ended.code == 0 and not kept.exists():
                shutil.copytree(output, kept / "model")
                (kept / "printed").write_text(ended.out, encoding="utf-8")
            return ended
        shutil.copytree(kept / "model", output)
        return Ended(0, (kept / "printed").read_text(encoding="utf-8"), "")


def same(shown: str, printed: str) -> bool:
    """Return whether something printed is what a page shows, "..." being anything; pages may show nothing."""
    return not shown or doctest.OutputChecker().check_output(f"{shown}\n", f"{printed}\n", FLAGS)


def send(arguments: Sequence[str]) -> str:
    """Send the request that curl sends, and return the answer, which is no error."""
    parser = ArgumentParser("curl")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-T", dest="upload", type=Path)
    parser.add_argument("-d", dest="fields", action="append")
    parser.add_argument("--json", type=str)
    parser.add_argument("url")
    given = parser.parse_args(arguments)
    headers = dict(header.split(": ", 1) for header in given.headers)
    body = None if given.upload is None else given.upload.read_bytes()
    if given.fields is not None:
        body = "&".join(given.fields).encode()
    if given.json is not None:
        body, headers["Content-Type"] = given.json.encode(), "application/json"
    request = urllib.request.Request(given.url, body, headers, method=given.method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(response.read().decode())


@contextmanager
def running_service(arguments: Sequence[str]) -> Iterator[str]:
    """Run `treelabel serve` as a process of its own on a free port, and yield its address."""
    command = child_python("-m", "treelabel", *arguments, "--port", "0")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = (json.loads(line) for line in process.stderr if line.startswith("{"))
            address = next((line["address"] for line in lines if "address" in line), None)
            assert address is not None, f"{arguments}: the service did not start"
            yield address
        finally:
            process.terminate()
