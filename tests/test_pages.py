"""Every code block of the README and of the site's pages runs, in order, in one folder and one namespace a page.

A fence says what a block is. `python`: a doctest where it has prompts, else a script. `console`: lines that begin with
"$ " are commands of treelabel; what stands under one is what it prints, "..." being anything. `json` and `toml` are
parsed. `text` is anything that cannot run here: other programs, services, formulas. Indented blocks say nothing of what
they are, so there are none.
"""

import doctest
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from markdown_it import MarkdownIt

import treelabel
from tests.helpers import Run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
# What Sphinx itself does with a fence.
DIRECTIVE = re.compile(r"\{[\w:-]+\}")


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


def run_python(block: Block, page: Path, names: dict[str, Any]) -> None:
    """Run a block as a doctest, or as a script if it has no prompts."""
    if ">>>" not in block.content:
        exec(compile(block.content, f"{page.name}:{block.line}", "exec", dont_inherit=True), names)
        return
    test = doctest.DocTestParser().get_doctest(block.content, names, page.name, str(page), block.line)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not report, "".join(report)


def commands_of(block: Block) -> Iterator[tuple[list[str], str]]:
    """Yield each command as words, and what the page says it prints."""
    joined = block.content.replace("\\\n", " ")
    assert joined.startswith("$ "), f"line {block.line}: a console block begins with a command"
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield shlex.split(command, comments=True), output


def run_console(block: Block, page: Path, run: Run) -> None:
    """Run the commands of a block, and compare what they print where the page shows it."""
    for (program, *arguments), shown in commands_of(block):
        assert program == "treelabel", f"{page.name}:{block.line}: {program} cannot run here; such blocks are text"
        ended = run(*arguments)
        printed = ended.out if ended.code in (0, 3) else ended.err
        assert ended.code in (0, 3) or shown.startswith("treelabel: "), f"{page.name}:{block.line}: {ended.err}"
        if shown.strip():
            agrees = doctest.OutputChecker().check_output(shown.strip() + "\n", printed.strip() + "\n", FLAGS)
            assert agrees, f"{page.name}:{block.line}: {arguments} printed\n{printed}\nexpected\n{shown}"


PARSERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "toml": tomllib.loads}


# The README has most of what the first page has, without the report.
CASES = [pytest.param(page, marks=[pytest.mark.slow] if page.stem == "start" else [], id=page.stem) for page in PAGES]


@pytest.mark.parametrize("page", CASES)
def test_the_blocks_of_a_page_run(page: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.kind == "python":
            run_python(block, page, names)
        elif block.kind == "console":
            run_console(block, page, run)
        elif block.kind in PARSERS:
            PARSERS[block.kind](block.content)
        else:
            assert block.kind == "text", f"{page.name}:{block.line}: a block of {block.kind or 'nothing'}"


def test_a_page_that_is_wrong_is_noticed(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    with pytest.raises(AssertionError, match="Expected"):
        run_python(Block("python", ">>> 1 + 1\n3\n", 1), page, {})
    with pytest.raises(AssertionError, match=r"expected\s+nothing"):
        run_console(Block("console", "$ treelabel -V\nnothing\n", 1), page, run)
    with pytest.raises(AssertionError, match="no such file"):
        run_console(Block("console", "$ treelabel inspect none.csv\n", 1), page, run)
    page.write_text("words\n\n    an indented block\n")
    with pytest.raises(AssertionError, match=r"page.md:3: fence this block"):
        list(blocks_of(page))


def test_every_page_is_in_the_contents() -> None:
    entries = [
        re.sub(r".*<(.*)>", r"\1", line)
        for page in PAGES[1:]
        for token in MarkdownIt().parse(page.read_text(encoding="utf-8"))
        if token.info == "{toctree}"
        for line in token.content.splitlines()
        if line and not line.startswith(":")
    ]
    assert sorted([*entries, "index"]) == sorted([*(page.stem for page in PAGES[1:]), "auto_examples/index"])


def test_the_readme_is_short_and_reads_well_anywhere() -> None:
    text = PAGES[0].read_text(encoding="utf-8")
    assert len(text.encode()) <= 9_000
    assert not re.findall(r"\]\((?!https://)[^)]*\)", text), "a package index knows no relative links"
    for path in re.findall(r"treelabel/(?:blob/)?main/([^)\s]+)", text):
        assert (ROOT / path).exists(), path


def test_the_page_of_python_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    missing = [name for name in treelabel.__all__ if not re.search(rf"\b{name}\b", text)]
    assert not missing, f"docs/api.md lacks {missing}"
