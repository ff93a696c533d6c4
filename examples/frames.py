"""
From a data frame to predictions in a frame
===========================================

Learn a model from a data frame, and get a data frame with predictions back, in ten lines of Python.
"""

import pandas as pd

import treelabel as tl

train, test = tl.split(tl.load_sample(), {"train": 0.8, "test": 0.2}, seed=0).values()
df = train.to_frame("pandas")  # your frame: pandas, polars, pyarrow, DuckDB, or Hugging Face's datasets

model = tl.fit(df, text="text", labels="label", preset="balanced")
print(model)

# %%
# New texts keep their columns.
new = pd.DataFrame({"text": ["a small dog that digs for rats", "a sweet cake with cream"], "price": [300, 5]})
print(model.predict_frame(new, alternatives=1).to_string())

# %%
# The same scorer is the scoring= of scikit-learn's cross_val_score and GridSearchCV.
print(f"hF1 of texts held out: {tl.scorer('hf1')(model, test.texts, test.paths()):.3f}")

# %%
# How often labels are right, over the probability that the model gave them.
figure = model.plot_calibration(test.texts, test.paths())
