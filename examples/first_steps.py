"""
Read a file, and look at its hierarchy
======================================

Read a file with label paths, look at it, and turn leaf probabilities into node probabilities.
"""

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

# %%
# What is in it, and the hierarchy that the paths make.
print(tickets.describe())
print(tickets.hierarchy.paths())

# %%
# The probability of a node is the sum over the leaves under it.
leaves = ["power", "display", "account"]
scores = tl.Scores.from_leaves(tickets.hierarchy, leaves, [[0.5, 0.25, 0.25]], ids=["new ticket"])
for name, p in zip(tickets.hierarchy.names, scores.dense()[0], strict=True):
    print(f"{p:.2f} {name}")

# %%
# The hierarchy of the embedded sample: levels as rows, labels as wide as what is under them.
figure = tl.load_sample().hierarchy.plot()
