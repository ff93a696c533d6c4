"""Every code block of the README and of the site's pages runs, in order, in one folder and one namespace a page.

A fence says what a block is. `python`: a doctest where it has prompts, else a script. `console`: lines that begin with
"$ " are commands; what stands under one is what it prints, "..." being anything. Commands are those of treelabel, and
curl, whose requests go to the service that the page has started (`treelabel serve ... &`, on a free port). `json` and
`toml` are parsed; a `toml` whose first line names a file is that file. `text` is no code of ours, or cannot run here:
NOT_RUN has the reason. Indented blocks say nothing of what they are, so there are none.
"""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import treelabel
from tests.helpers import Run
from tests.page_blocks import Block, PageRun, blocks_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What the lines of commands in `text` blocks contain, and why they do not run here. A `text` without commands is a
# formula, a picture, a form of lines, or what to cite.
NOT_RUN = {
    "pip install": "installs packages",
    "make ": "the commands of the Makefile, which run these tests",
    "torchrun": "fine-tunes a model that is not here, for hours",
    "--cluster": "needs a cluster; tests/cluster starts one",
    "sbatch": "needs Slurm",
    "benchmarks/few_labels.py": "takes hours",
    "tritonclient": "is not installed; tools/check_clients.py runs it in an environment of its own",
    "label-studio": "is not installed; tools/check_clients.py walks through it",
    "localhost:8081": "asks Label Studio",
}
COMMAND = re.compile(r"^(\$ |treelabel |curl |python |import |from |\w+=\S+ |sbatch|torchrun|pip|make)", re.MULTILINE)

# The README has most of what the pages have.
QUICK = ("README", "rules")
CASES = [pytest.param(page, marks=[] if page.stem in QUICK else [pytest.mark.slow], id=page.stem) for page in PAGES]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models that several pages fit."""
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("page", CASES)
def test_the_blocks_of_a_page_run(
    page: Path, run: Run, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        page_run = PageRun(page, run, models, stack)
        for block in blocks_of(page):
            if block.kind != "text":
                page_run.run_block(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_does_not_run_has_a_reason(page: Path) -> None:
    for block in blocks_of(page):
        if block.kind == "text" and COMMAND.search(block.content):
            assert any(words in block.content for words in NOT_RUN), f"{page.name}:{block.line}: this could run"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (Block("python", ">>> 1 + 1\n3\n", 1), "Expected"),
        (Block("console", "$ treelabel -V\nnothing\n", 1), r"expected\s+nothing"),
        (Block("console", "$ treelabel inspect none.csv\n", 1), "no such file"),
        (Block("console", "$ rm none.csv\n", 1), "cannot run here"),
        (Block("perl", "1\n", 1), "a block of perl"),
    ],
    ids=["python", "output", "command", "program", "kind"],
)
def test_a_block_that_is_wrong_is_noticed(
    block: Block, message: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack, pytest.raises(AssertionError, match=message):
        PageRun(tmp_path / "page.md", run, tmp_path, stack).run_block(block)


def test_a_block_without_a_fence_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
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
    for page in re.findall(r"treelabel\.github\.io/treelabel/([\w-]+)\.html", text):
        assert (ROOT / "docs" / f"{page}.md").exists(), page


def test_the_page_of_python_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    missing = [name for name in treelabel.__all__ if not re.search(rf"\b{name}\b", text)]
    assert not missing, f"docs/api.md lacks {missing}"
