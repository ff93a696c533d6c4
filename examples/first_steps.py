"""Read a file with label paths, look at it, split it, and turn leaf probabilities into node probabilities."""

import tempfile
from pathlib import Path

import treelabel as tl

CSV = """text,category
my charger stopped working,hardware > power
the battery drains overnight,hardware > power
screen flickers when it is cold,hardware > display
cannot log in after the update,software > account
"""

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "tickets.csv")
    path.write_text(CSV)
    tickets = tl.read(path, labels="category", sep=" > ")

print(tickets.describe())
print(tickets.hierarchy.paths())

leaves = ["power", "display", "account"]
scores = tl.Scores.from_leaves(tickets.hierarchy, leaves, [[0.5, 0.25, 0.25]], ids=["new ticket"])
for name, p in zip(tickets.hierarchy.names, scores.dense()[0], strict=True):
    print(f"{p:.2f} {name}")
