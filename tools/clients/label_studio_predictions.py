"""Have label-studio-sdk judge what a service predicts as an ML backend: `label_studio_predictions.py ADDRESS`."""

import json
import sys
import urllib.request
from importlib.metadata import version

from label_studio_sdk.label_interface import LabelInterface

TAXONOMY = """<View><Header value="What is it?"/><Text name="definition" value="$gloss"/>
<Taxonomy name="nouns" toName="definition" leafsOnly="true"><Choice value="animal"><Choice value="mammal"/>
<Choice value="bird"/></Choice><Choice value="food"/><Choice value="plant"/></Taxonomy></View>"""
CHOICES = """<View><Text name="text" value="$text"/><Choices name="kind" toName="text" choice="{choice}">
<Choice value="animal"/><Choice value="food"/><Choice value="plant"/></Choices></View>"""


def post(path: str, body: dict) -> dict:
    """Send what the app sends."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{sys.argv[1]}/label-studio/nouns{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


for config, key in ((TAXONOMY, "gloss"), *((CHOICES.format(choice=each), "text") for each in ("single", "multiple"))):
    interface = LabelInterface(config)
    setup = post(
        "/setup", {"project": "1.2", "schema": config, "hostname": "", "access_token": "", "extra_params": None}
    )
    texts = ["a small bird that sings at night", "a sweet cake"]
    tasks = [{"id": number, "data": {key: text}} for number, text in enumerate(texts)]
    answer = post("/predict", {"tasks": tasks, "project": "1.2", "label_config": config, "params": {"context": None}})
    assert len(answer["results"]) == len(tasks), answer
    for prediction in answer["results"]:
        errors = interface.validate_prediction(prediction, return_errors=True)
        assert errors == [], errors
        assert prediction["result"], "nothing was predicted"
        assert prediction["model_version"] == setup["model_version"], (prediction, setup)
print("label-studio-sdk", version("label-studio-sdk"))
