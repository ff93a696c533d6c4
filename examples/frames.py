"""From a data frame to a model and back to a data frame: ten lines of Python."""

import pandas as pd

import treelabel as tl

sample = tl.load_sample()
train, test = tl.split(sample, test=0.2, seed=0)
df = train.to_frame("pandas")  # any frame of yours: pandas, polars, pyarrow, DuckDB, datasets

model = tl.fit(df, text="text", labels="label", preset="fast")
print(model)
new = pd.DataFrame({"text": ["a small dog that digs for rats", "a cake with cream"], "price": [3, 5]})
print(model.predict_frame(new, alternatives=1).to_string())

judge = tl.scorer("hf1")  # for scikit-learn's cross_val_score and GridSearchCV, too
print(f"hF1 {judge(model, test.texts, test.paths()):.3f}")
