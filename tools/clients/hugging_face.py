"""Ask a service by huggingface_hub's InferenceClient: `hugging_face.py ADDRESS`."""

import sys
from importlib.metadata import version

from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

TEXT = "a small bird that sings at night"
client = InferenceClient(f"{sys.argv[1]}/hf/nouns")
best = client.text_classification(TEXT, top_k=3)
assert len(best) == 3, best
assert [each.score for each in best] == sorted((each.score for each in best), reverse=True), best
assert all(isinstance(each.label, str) and 0 <= each.score <= 1 for each in best), best
every = client.text_classification(TEXT)
assert every[:3] == best, every
try:
    client.text_classification(TEXT, model=f"{sys.argv[1]}/hf/nothing")
except HfHubHTTPError as error:
    assert error.response.status_code == 404, error
else:
    raise AssertionError("a model that is not there was accepted")
print("huggingface_hub", version("huggingface_hub"))
