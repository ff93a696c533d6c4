"""Ask a service by tritonclient, in JSON and in the binary form: `open_inference_triton.py ADDRESS`."""

import sys
from importlib.metadata import version

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

TEXTS = np.array(["a small bird that sings at night", "été & 茶", ""], dtype=object)
client = InferenceServerClient(sys.argv[1].removeprefix("http://"))
assert client.is_server_live()
assert client.is_server_ready()
assert client.is_model_ready("nouns")
assert not client.is_model_ready("nothing")
assert client.get_server_metadata()["name"] == "treelabel"
metadata = client.get_model_metadata("nouns")
assert [(each["name"], each["datatype"]) for each in metadata["inputs"]] == [("text", "BYTES")], metadata
assert [(each["name"], each["datatype"]) for each in metadata["outputs"]] == [("labels", "BYTES"), ("scores", "FP32")]

answers = []
for shape in ([3], [3, 1]):
    for is_binary in (False, True):
        text = InferInput("text", shape, "BYTES")
        text.set_data_from_numpy(TEXTS.reshape(shape), binary_data=is_binary)
        outputs = [InferRequestedOutput(name, binary_data=is_binary) for name in ("labels", "scores")]
        result = client.infer("nouns", [text], outputs=outputs, request_id="r1", parameters={"k": 4})
        labels, scores = result.as_numpy("labels"), result.as_numpy("scores")
        assert labels.shape == scores.shape == (3, 4), (labels, scores)
        assert scores.dtype == np.float32
        assert result.get_response()["id"] == "r1"
        names = [[each.decode() if isinstance(each, bytes) else each for each in row] for row in labels]
        answers.append((names, scores.tolist()))
assert all(answer == answers[0] for answer in answers), answers
# Without outputs the client asks for all of them in the binary form.
assert client.infer("nouns", [text]).as_numpy("scores").shape[0] == 3
compressed = client.infer("nouns", [text], request_compression_algorithm="gzip", parameters={"k": 4})
assert compressed.as_numpy("scores").tolist() == answers[0][1]
for model, wrong in (
    ("nothing", text),
    ("nouns", InferInput("picture", [3, 1], "BYTES").set_data_from_numpy(TEXTS.reshape(3, 1))),
):
    try:
        client.infer(model, [wrong])
    except InferenceServerException as error:
        assert error.status() in ("400", "404"), error
        assert "decoding the response" not in error.message(), error
    else:
        raise AssertionError("a wrong request was accepted")
print("tritonclient", version("tritonclient"))
