"""
Learn, judge, explain, save
===========================

Learn the embedded sample with the default model and with others; judge, explain, save and load them.
"""

import tempfile
from pathlib import Path

import treelabel as tl

train, test = tl.split(tl.load_sample(), {"train": 0.8, "test": 0.2}, seed=0).values()

for name, settings in (("linear", {}), ("bag", {"epochs": 10}), ("zero_shot", {})):
    model = tl.make_model(name, **settings).fit(train)
    result = tl.evaluate(test, scores=model.score(test), rule="optimal:hf1", metrics=["hf1", "hf1_auc", "ece"])
    print(f"{name:<10} hf1 {result['hf1']:.3f}  hf1_auc {result['hf1_auc']:.3f}  calibration error {result['ece']:.3f}")

# %%
# Every metric has an interval.
model = tl.make_model("linear").fit(train)
result = tl.evaluate(test, scores=model.score(test), metrics=["leaf_accuracy", "hf1", "micro_f1", "macro_f1"])
figure = result.plot()

# %%
# The words that led to a label, step by step.
text = "a small dog that digs for rats"
print(model.predict([text], paths=True)[0])
for step in model.explain(text):
    print(f"  {step.label:<14} p {step.p:.2f}  supporting: {', '.join(word for word, _ in step.supporting_terms)}")

# %%
# A model is a folder.
with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder, "model"))
    print(tl.load_model(Path(folder, "model")).predict([text]))
