"""
Train a network, pool it, export it
===================================

Train a small network with two losses, pool it with a linear model, and export it to run without torch.
"""

import tempfile
from pathlib import Path

import treelabel as tl
from treelabel.neural.model import Neural

sample = tl.load_sample()
train, test, _ = tl.split(sample, {"train": 0.1, "test": 0.05, "rest": 0.85}, seed=0).values()

# encoder="scratch" needs no files; "minilm" is a pretrained one (treelabel encoders says how to get it).
small = {"encoder": "scratch", "epochs": 4, "max_length": 32}
for loss in ("bce", "conditional_softmax_la"):
    model = tl.make_model("neural", loss=loss, **small).fit(train)
    result = tl.evaluate(test, scores=model.score(test), rule="best_leaf", metrics=["leaf_accuracy", "hf1_auc"])
    print(f"{loss:<24} leaf accuracy {result['leaf_accuracy']:.3f}  hf1_auc {result['hf1_auc']:.3f}")

# %%
# What the second loss gives, with intervals.
figure = result.plot()

# %%
# Pooled with a linear model, by weights learned out of fold.
both = tl.make_model("stack", estimators=("linear", {"model": "neural", **small}), cv=2).fit(train)
print("pooled:", both.predict(["a small dog that digs for rats"], paths=True)[0])

# %%
# Only networks can be exported.
assert isinstance(model, Neural)
with tempfile.TemporaryDirectory() as folder:
    model.export("int8").save(Path(folder, "model"))
    print("int8:  ", tl.load_model(Path(folder, "model")).predict(["a small dog that digs for rats"], paths=True)[0])
