"""Import this to have compiled code loaded and the command line ready, with which a process is to be forked.

Few documents stay in one thread: threads do not survive a fork.
"""

import os
import sys
from contextlib import suppress

from treelabel import Hierarchy, decide, make_model, tune
from treelabel.cli import main

texts = ["woof", "meow", "bark", "purr"] * 3
labels = [["pet > dog"], ["pet > cat"]] * 6
model = make_model("linear").fit(texts, labels, hierarchy=Hierarchy.from_paths(["pet > dog", "pet > cat"]))
scores = model.score(texts)
for rule in ("threshold", "best_leaf"):
    decide(scores, rule)
tune(labels, scores, "macro_f1")
scores.top_k(1)

# The parser of the command line reads its types when it first parses something.
real, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
with suppress(SystemExit):
    main(["rules"])
sys.stdout.close()
sys.stdout = real
