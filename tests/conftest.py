"""Hypothesis without time limits, as compiled code is slow the first time; in CI the same examples in every run."""

import os

from hypothesis import settings

settings.register_profile("treelabel", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("treelabel")
