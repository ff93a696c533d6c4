"""The values that settings may have, once for all models: the same word means the same thing everywhere.

A model gets its checks from the type hints of its maker: `min_df: Count = 1`. Other limits are written where they
belong, as `Annotated[int, Between(1, 30)]`.
"""

from typing import Annotated

from treelabel.core.validation import LARGEST, Between, PowerOfTwo, Rising
from treelabel.text.ngrams import LARGEST_N, MOST_FEATURES

Seed = Annotated[int, Between(0, 1 << 32)]
# A weight of errors, as scikit-learn's C.
Cost = Annotated[float, Between(1e-6, 1e6)]
Share = Annotated[float, Between(0, 1)]
# A share of documents that are held out, or of numbers that are set to 0: some are left.
PartialShare = Annotated[float, Between(0, 0.99)]
NonNegative = Annotated[float, Between(0, 1e6)]
LearningRate = Annotated[float, Between(1e-12, LARGEST)]
Seconds = Annotated[float, Between(0, 1e9)]
Folds = Annotated[int, Between(2, 100)]
Count = Annotated[int, Between(1, 1 << 31)]
Passes = Annotated[int, Between(1, 1_000_000)]
Width = Annotated[int, Between(1, 1 << 16)]
WidthOrNone = Annotated[int, Between(0, 1 << 16)]
Length = Annotated[int, Between(1, LARGEST_N)]
# The shortest and the longest n-grams.
NgramRange = Annotated[tuple[Length, Length], Rising()]
Buckets = Annotated[int, Between(1, MOST_FEATURES)]
PowerOfTwoBuckets = Annotated[int, PowerOfTwo(2, 1 << 30)]
