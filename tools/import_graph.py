"""Draw which room of the package imports which, from the code itself, and check the arrows against the design.

    python tools/import_graph.py            # write docs/import_graph.svg; list what the design does not allow
    python tools/import_graph.py --check    # only list it

A room is what stands directly under src/treelabel: a folder, or a module of its own. Every import counts, as
find_imports.py says. The exit status is 1 if a room imports what ALLOWED does not list, or is not in the design at all.
"""

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.find_imports import Import, find_imports, module_parts, read_package

# The layers from top to bottom: each room with its column in the picture.
LAYERS: tuple[dict[str, float], ...] = (
    {"cli": 2.5},
    {"report": 0.85, "experiment": 2.05, "serve": 3.25, "cluster": 4.45},
    {"operations": 2.5},
    {"stack": 3.65},
    {"neural": 4.25},
    {"evaluation": 1.3, "models": 3.65},
    {"selection": 3.05},
    {"metrics": 0.7, "rules": 1.9, "calibration": 3.1},
    {"data": 0, "scores": 1.7, "encoders": 4.4},
    {"hierarchy": 1.5, "text": 4.9},
    {"core": 2.5},
)

# What each room may import, itself aside.
_SCORED = {"core", "hierarchy", "scores"}
_SELECTING = _SCORED | {"metrics", "rules", "calibration"}
_LEARNING = _SELECTING | {"selection", "text", "encoders"}
_BELOW_THE_TOP = {room for layer in LAYERS[2:] for room in layer}
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "hierarchy": {"core"},
    "scores": {"core", "hierarchy"},
    "data": {"core", "hierarchy", "text"},
    "text": {"core"},
    "encoders": {"core", "text"},
    "calibration": _SCORED,
    "metrics": _SCORED,
    "rules": _SCORED,
    "evaluation": _SCORED | {"metrics", "rules"},
    "selection": _SELECTING | {"text"},
    "models": _LEARNING,
    "neural": _LEARNING | {"models"},
    "stack": _LEARNING | {"models", "neural"},
    "operations": _BELOW_THE_TOP - {"operations"},
    "experiment": _BELOW_THE_TOP,
    "report": _BELOW_THE_TOP,
    "serve": _BELOW_THE_TOP,
    "cluster": _BELOW_THE_TOP,
    "cli": _BELOW_THE_TOP | set(LAYERS[1]),
}

# Rows of registries are loaded lazily, wherever they live: MODELS names neural systems and the stack.
LAZY = {("models", "neural"), ("models", "stack")}

Edge = tuple[str, str]


# Rooms


def room_of(module: str) -> str | None:
    """Return the room of a module, None for the package's own __init__ and __main__, which may import anything.

    >>> room_of("treelabel.models.linear"), room_of("treelabel")
    ('models', None)
    """
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else None


def room_edges(imports: Iterable[Import]) -> dict[Edge, list[Import]]:
    """Collapse imports to edges between rooms, in alphabetical order; lazy rows of registries are none."""
    edges: dict[Edge, list[Import]] = {}
    for each in imports:
        source, target = room_of(each.source), room_of(each.target)
        is_row = each.kind == "string" and (source, target) in LAZY
        if source and target and source != target and not is_row:
            edges.setdefault((source, target), []).append(each)
    return dict(sorted(edges.items()))


def forbidden(edges: Iterable[Edge]) -> list[Edge]:
    """Select the edges between rooms of the design that it does not allow.

    >>> forbidden([("models", "rules"), ("rules", "models"), ("models", "data")])
    [('rules', 'models'), ('models', 'data')]
    """
    return [(a, b) for a, b in edges if a in ALLOWED and b in ALLOWED and b not in ALLOWED[a]]


def implied(edges: Sequence[Edge]) -> set[Edge]:
    """Select the edges that a longer way leads along as well; the edges must have no cycle.

    >>> implied([("a", "b"), ("b", "c"), ("a", "c")])
    {('a', 'c')}
    """
    after: dict[str, set[str]] = {}
    for a, b in edges:
        after.setdefault(a, set()).add(b)

    def reached(room: str) -> set[str]:
        return {room}.union(*(reached(each) for each in after.get(room, ())))

    return {(a, b) for a, b in edges if any(b in reached(other) for other in after[a] - {b})}


# Drawing

BOX_WIDTH, BOX_HEIGHT, COLUMN, ROW, MARGIN = 116.0, 42.0, 150.0, 92.0, 40.0
WIDTH = 2 * MARGIN + 5 * COLUMN + BOX_WIDTH
# Space around a box or another arrow that an arrow keeps when it passes through a layer.
CLEARANCE = 11.0
STYLE = """
  text { font-family: "DejaVu Sans", Verdana, sans-serif; text-anchor: middle; fill: #1f2937; }
  .name { font-size: 14px; font-weight: bold; } .note { font-size: 10.5px; fill: #6b7280; }
  .layer { fill: #f3f4f6; } .box { fill: #ffffff; stroke: #334155; stroke-width: 1.4; }
  .absent { stroke-dasharray: 4 3; stroke: #9ca3af; }
  .edge { fill: none; stroke: #64748b; stroke-width: 1.5; marker-end: url(#arrow); }
  .forbidden { stroke: #dc2626; stroke-width: 2; marker-end: url(#red-arrow); }
"""


@dataclass(frozen=True)
class Box:
    """Where a room stands: the middle of its box, and its row."""

    x: float
    y: float
    row: int


def boxes_of(unknown: Sequence[str]) -> dict[str, Box]:
    """Place the rooms of the design in their layers, and unknown ones in rows of six below."""
    places = [(room, column, row) for row, layer in enumerate(LAYERS) for room, column in layer.items()]
    places += [(room, index % 6, len(LAYERS) + index // 6) for index, room in enumerate(unknown)]
    return {
        room: Box(MARGIN + BOX_WIDTH / 2 + column * COLUMN, MARGIN + BOX_HEIGHT / 2 + row * ROW, row)
        for room, column, row in places
    }


class Lanes:
    """Where arrows may pass through a layer: beside its boxes, and beside the arrows that already do."""

    def __init__(self, boxes: Iterable[Box]) -> None:
        self._taken: dict[int, list[tuple[float, float]]] = {}
        for box in boxes:
            self._taken.setdefault(box.row, []).append((box.x, BOX_WIDTH / 2 + CLEARANCE))

    def take(self, row: int, wanted: float) -> float:
        """Take the free place nearest to the one wanted, the left one of two."""
        taken = self._taken.setdefault(row, [])
        steps = (sign * step for step in range(0, int(WIDTH), 2) for sign in (-1, 1))
        x = next(wanted + by for by in steps if all(abs(wanted + by - at) >= room for at, room in taken))
        taken.append((x, CLEARANCE))
        return x


def draw(edges: Mapping[Edge, Sequence[Import]], modules: Mapping[str, int]) -> str:
    """Return the picture as SVG.

    Parameters
    ----------
    edges
        The imports between rooms, as `room_edges` returns them.
    modules
        The number of modules in each room.
    """
    unknown = sorted(modules.keys() - ALLOWED.keys())
    boxes = boxes_of(unknown)
    height = max(box.y for box in boxes.values()) + BOX_HEIGHT / 2 + MARGIN + 14
    wrong = forbidden(edges)
    right = [edge for edge in edges if edge[0] in ALLOWED and edge[1] in ALLOWED and edge not in wrong]
    shown = [edge for edge in right if edge not in implied(right)]
    paths = _paths([*shown, *wrong], boxes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" width="{WIDTH:g}" role="img">',
        "<title>Which package of treelabel imports which</title>",
        f"<style>{STYLE}</style>",
        f"<defs>{_arrow_head('arrow', '#64748b')}{_arrow_head('red-arrow', '#dc2626')}</defs>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *_bands(boxes),
        *(_line(edge, paths[edge], "edge", edges[edge]) for edge in shown),
        *(_line(edge, paths[edge], "edge forbidden", edges[edge]) for edge in wrong),
        *(_box(room, box, modules.get(room, 0), edges) for room, box in boxes.items()),
        f'<text class="note" x="{WIDTH / 2:g}" y="{height - 16:g}">{_caption(wrong, unknown)}</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _caption(wrong: Sequence[Edge], unknown: Sequence[str]) -> str:
    parts = ["An arrow reads “imports”; arrows that follow from others are left out."]
    parts += ["Red: not allowed."] * bool(wrong) + ["Dashed: not in the design, arrows not drawn."] * bool(unknown)
    return " ".join(parts)


def _arrow_head(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.8 L8 4 L0 7.2 Z" fill="{colour}"/></marker>'
    )


def _bands(boxes: Mapping[str, Box]) -> Iterator[str]:
    for y in sorted({box.y for box in boxes.values()}):
        top, band = y - BOX_HEIGHT / 2 - 9, BOX_HEIGHT + 18
        yield f'<rect class="layer" x="10" y="{top:g}" width="{WIDTH - 20:g}" height="{band:g}" rx="8"/>'


def _box(room: str, box: Box, modules: int, edges: Iterable[Edge]) -> str:
    targets = ", ".join(b for a, b in edges if a == room) or "nothing"
    kind = "box" if modules and room in ALLOWED else "box absent"
    size = f"{modules} module{'s' * (modules != 1)}" if modules else "not there yet"
    note = size if room in ALLOWED else "not in the design"
    return (
        f"<g><title>{escape(room)} imports {escape(targets)}</title>"
        f'<rect class="{kind}" x="{box.x - BOX_WIDTH / 2:g}" y="{box.y - BOX_HEIGHT / 2:g}" '
        f'width="{BOX_WIDTH:g}" height="{BOX_HEIGHT:g}" rx="7"/>'
        f'<text class="name" x="{box.x:g}" y="{box.y - 1:g}">{escape(room)}</text>'
        f'<text class="note" x="{box.x:g}" y="{box.y + 14:g}">{note}</text></g>'
    )


def _line(edge: Edge, path: str, kind: str, imports: Sequence[Import]) -> str:
    told = f"{edge[0]} imports {edge[1]} in {len({each.source for each in imports})} modules"
    return f'<path class="{kind}" d="{path}"><title>{told}</title></path>'


def _paths(edges: Sequence[Edge], boxes: Mapping[str, Box]) -> dict[Edge, str]:
    """Lay every edge: from port to port, between boxes of the layers that it passes."""
    ports = _ports(edges, boxes)
    lanes = Lanes(boxes.values())
    paths = {}
    # Short edges first: they have the least choice.
    for edge in sorted(edges, key=lambda edge: (abs(boxes[edge[0]].row - boxes[edge[1]].row), edge)):
        a, b = (boxes[room] for room in edge)
        if a.row == b.row:
            paths[edge] = _beside(a, b, boxes)
            continue
        down = 1 if b.row > a.row else -1
        start, end = ports[edge]
        points = [(start, a.y + down * BOX_HEIGHT / 2)]
        for row in range(a.row + down, b.row, down):
            share = (row - a.row) / (b.row - a.row)
            x, y = lanes.take(row, start + share * (end - start)), a.y + (row - a.row) * ROW
            points += [(x, y - down * BOX_HEIGHT / 2), (x, y + down * BOX_HEIGHT / 2)]
        points.append((end, b.y - down * BOX_HEIGHT / 2))
        paths[edge] = _smooth(points)
    return paths


def _ports(edges: Sequence[Edge], boxes: Mapping[str, Box]) -> dict[Edge, tuple[float, float]]:
    """Spread the ends of edges along the sides of their boxes, in the order of where they come from and go to."""
    sides: dict[tuple[str, bool], list[tuple[float, Edge, int]]] = {}
    for edge in edges:
        a, b = (boxes[room] for room in edge)
        sides.setdefault((edge[0], a.row < b.row), []).append((b.x, edge, 0))
        sides.setdefault((edge[1], b.row < a.row), []).append((a.x, edge, 1))
    found: dict[Edge, list[float]] = {edge: [0.0, 0.0] for edge in edges}
    for (room, _), ends in sides.items():
        step = min(20.0, 0.8 * BOX_WIDTH / len(ends))
        for place, (_, edge, end) in enumerate(sorted(ends)):
            found[edge][end] = boxes[room].x + (place - (len(ends) - 1) / 2) * step
    return {edge: (start, end) for edge, (start, end) in found.items()}


def _smooth(points: Sequence[tuple[float, float]]) -> str:
    """Join points by curves that leave and arrive vertically."""
    path = "M{:g} {:g}".format(*points[0])
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        middle = (y0 + y1) / 2
        path += f" C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}"
    return path


def _beside(a: Box, b: Box, boxes: Mapping[str, Box]) -> str:
    """Join two boxes of a row: straight where they are neighbours, else by an arc below the others."""
    side = 1 if b.x > a.x else -1
    if not any(box.row == a.row and min(a.x, b.x) < box.x < max(a.x, b.x) for box in boxes.values()):
        return f"M{a.x + side * BOX_WIDTH / 2:g} {a.y:g} L{b.x - side * BOX_WIDTH / 2:g} {b.y:g}"
    y, low = a.y + BOX_HEIGHT / 2, a.y + BOX_HEIGHT / 2 + 30
    return f"M{a.x:g} {y:g} C{a.x:g} {low:g} {b.x:g} {low:g} {b.x:g} {y:g}"


# The command


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw and check; return the exit status."""
    home = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, default=home / "src" / "treelabel", help="the package's folder")
    parser.add_argument("--output", type=Path, default=home / "docs" / "import_graph.svg", help="the picture")
    parser.add_argument("--check", action="store_true", help="write nothing")
    asked = parser.parse_args(arguments)
    sources = read_package(asked.source)
    edges = room_edges(find_imports(sources))
    modules: dict[str, int] = {}
    for room in filter(None, map(room_of, (".".join(module_parts(name)) for name in sources))):
        modules[room] = modules.get(room, 0) + 1
    if not asked.check:
        asked.output.write_text(draw(edges, modules), encoding="utf-8", newline="\n")
    unknown = sorted(modules.keys() - ALLOWED.keys())
    wrong = forbidden(edges)
    for edge in wrong:
        for each in edges[edge]:
            print(f"{_place(each, asked.source, sources)}: {_told(edge, each)}", file=sys.stderr)
    for room in unknown:
        print(f"{asked.source / room}: {room} is not in the design; add it to LAYERS and ALLOWED", file=sys.stderr)
    return 1 if wrong or unknown else 0


def _place(each: Import, folder: Path, sources: Mapping[str, str]) -> str:
    name = each.source if each.source in sources else f"{each.source}.__init__"
    return f"{folder.parent.joinpath(*name.split('.'))}.py:{each.line}"


def _told(edge: Edge, each: Import) -> str:
    return f"{edge[0]} imports {edge[1]} ({each.kind}: {each.target}), which the design does not allow"


if __name__ == "__main__":
    sys.exit(main())
