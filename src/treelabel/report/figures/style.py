"""How figures look: fonts, lines, and colours that readers with any colour vision can tell apart."""

from typing import Any, Final

# Okabe and Ito's colours, the most different first.
PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
# Lines and bars differ in more than their colour.
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: Final = ("-", "--", "-.", ":")
HATCHES: Final = ("", "///", "...", "\\\\\\", "xxx", "---", "+++", "ooo")
INK: Final = "#1b1f24"
QUIET: Final = "#5b6570"
GRID: Final = "#d9dee3"
PAPER: Final = "#ffffff"

# Colours that the page replaces by its own, which depend on whether it is dark.
VARIABLES: Final = {
    INK: "var(--ink)",
    QUIET: "var(--quiet)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--s{place})" for place, colour in enumerate(PALETTE, 1)},
}

SETTINGS: Final[dict[Any, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "pdf.fonttype": 42,
    "svg.hashsalt": "treelabel",
}
