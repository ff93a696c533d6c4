"""Write what the site takes from the code and from stored results: tables of names, studies, a chart, llms.txt.

    python tools/site_content.py docs/generated_tables

`make docs` calls it. Nothing that it writes is kept in the repository, so that no page can say what is no longer true.
"""

import json
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from typer import Context
from typer.main import get_command

import treelabel as tl
from treelabel.cli.app import app
from treelabel.encoders.registry import ENCODERS
from treelabel.experiment.results import Results
from treelabel.experiment.table_styles import summarize

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ("revisiting-htc", "hierarchical-loss", "tail-labels", "extreme-evaluation", "peers")
# Data sets of the chart, with their titles; models of treelabel, and peers, by the name of their system.
CHART = {"hwv": "HWV: 953 leaves, 1,602 texts", "mwpd_gpc": "product offers: 10,012 texts"}
OURS = {
    "linear": "linear",
    "bag": "bag",
    "linear_both": "linear + MiniLM",
    "prototype": "prototype",
    "prototype_potion": "prototype, potion",
    "stack": "stack",
}
PEERS = {
    "svc_words": "LinearSVC",
    "svc_characters": "LinearSVC, characters",
    "fasttext": "fastText",
    "hiclass": "HiClass",
    "omikuji": "omikuji",
    "pecos": "PECOS",
}
# Where the label of a point stands, for those that would cover another.
OFFSETS = {"PECOS": (-12, -13), "linear": (6, 5), "omikuji": (7, -3), "bag": (3, -13), "LinearSVC": (7, 1)}


def write_tables(folder: Path) -> None:
    """Write every table and the chart into a folder."""
    folder.mkdir(exist_ok=True)
    for name, registry in (
        ("metrics", tl.METRICS),
        ("rules", tl.RULES),
        ("models", tl.MODELS),
        ("losses", tl.LOSSES),
        ("formats", tl.FORMATS),
        ("encoders", ENCODERS),
    ):
        rows = [(f"`{row.name}`", row.help) for row in registry.values()]
        write(folder / f"{name}.md", table(("name", "what it is"), rows))
    write(folder / "commands.md", commands())
    for study in STUDIES:
        write(folder / f"{study}.md", study_tables(ROOT / "specs" / "results" / f"{study}.json"))
    for mode, ink in (("light", "#1f2328"), ("dark", "#ced6dd")):
        draw_chart(folder / f"models-{mode}.svg", ink)


def write(path: Path, text: str) -> None:
    """Write a file, unless it holds the text already: Sphinx looks at times."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def commands() -> str:
    """Return the help of every command."""
    context = Context(get_command(app), info_name="treelabel")
    parts = []
    for name, command in context.command.commands.items():  # type: ignore[attr-defined]
        text = command.get_help(Context(command, info_name=name, parent=context, terminal_width=100))
        parts.append(f"## {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def study_tables(path: Path) -> str:
    """Return the tables and verdicts of a study, with the command, the date and the machine."""
    results = json.loads(path.read_text(encoding="utf-8"))
    days = sorted(run["finished"][:10] for run in results["runs"] if run["finished"])
    machine, versions = results["runs"][0]["machine"], results["runs"][0]["versions"]
    stored = path.relative_to(ROOT)
    text, _ = summarize(Results.load(path), "markdown", None, True, True, False, header=True)
    body = text.partition("\n")[2] if text.startswith("## ") else text
    run = f"{days[0]} to {days[-1]}" if days[0] != days[-1] else days[0]
    about = " ".join(tomllib.loads(results["spec"])["about"].split())
    return (
        f"{about}\n\n*Run {run} on {machine['system']}, {machine['processor']}, {machine['cores']} cores, Python "
        f"{versions['python']}, by:*\n\n```text\n{results['command']}\ntreelabel tables {stored}\n```\n\n"
        f":::{{div}} wide-table\n{body.strip()}\n:::\n"
    )


# The chart


def points(data: str) -> list[tuple[str, float, float, bool]]:
    """Return the title, seconds, accuracy in percent and origin of every system on a data set."""
    runs = json.loads((ROOT / "specs" / "results" / "peers.json").read_text(encoding="utf-8"))["runs"]
    titles = OURS | PEERS
    return [
        (titles[run["system"]], run["fit_seconds"], 100 * leaf_accuracy(run), run["system"] in OURS)
        for run in runs
        if run["data"] == data and run["system"] in titles
    ]


def leaf_accuracy(run: dict[str, Any]) -> float:
    """Return the leaf accuracy of a run's best leaves."""
    (value,) = [each["values"]["leaf_accuracy"] for each in run["judged"] if each["rule"] == "best_leaf"]
    return float(value)


def draw_chart(path: Path, ink: str) -> None:
    """Draw accuracy over seconds of learning: ours filled, peers hollow."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "treelabel", "text.color": ink, "axes.labelcolor": ink, "axes.edgecolor": ink}):
        figure = Figure(figsize=(9.6, 4.4), layout="constrained")
        figure.patch.set_alpha(0)
        for axes, (data, title) in zip(figure.subplots(1, len(CHART)), CHART.items(), strict=True):
            axes.patch.set_alpha(0)
            axes.set_xscale("log")
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("seconds to learn, one thread, texts embedded before")
            axes.set_ylabel("exact leaf, %")
            axes.tick_params(colors=ink)
            axes.spines[["top", "right"]].set_visible(False)
            for name, seconds, accuracy, is_ours in points(data):
                colour = "#0a7d91" if is_ours else "#9a6700"
                face = colour if is_ours else "none"
                axes.scatter(seconds, accuracy, s=42, facecolors=face, edgecolors=colour, linewidths=1.5)
                axes.annotate(
                    name, (seconds, accuracy), OFFSETS.get(name, (6, 3)), textcoords="offset points", fontsize=8
                )
            axes.set_xlim(0.9, 400)
        figure.savefig(path, metadata={"Date": None})


# For language models


def write_llms_txt(app: Any, error: Exception | None) -> None:
    """List every page with its source, in the form of llms.txt."""
    if error is not None or app.builder.format != "html":
        return
    pages = [name for name in sorted(app.env.titles) if "/" not in name]
    lines = ["# treelabel", "", f"> {tl.__doc__.splitlines()[0]}", "", "Each page as Markdown:", ""]
    for name in pages:
        title = app.env.titles[name].astext()
        lines.append(f"- [{title}](_sources/{app.env.doc2path(name, base=False)}.txt)")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]))
