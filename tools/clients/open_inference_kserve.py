"""Ask a service by kserve's client: `open_inference_kserve.py ADDRESS`."""

import asyncio
import sys
from importlib.metadata import version

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

TEXTS = ["a small bird that sings at night", "été & 茶"]


async def ask(address: str) -> None:
    """Ask for everything that the client can ask for."""
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_live(address) is True
    assert await client.is_server_ready(address) is True
    assert await client.is_model_ready(address, "nouns") is True
    assert await client.is_model_ready(address, "nothing") is False
    answers = []
    for is_binary in (False, True):
        text = InferInput("text", [2], "BYTES")
        text.set_data_from_numpy(np.array(TEXTS, dtype=object), binary_data=is_binary)
        outputs = [RequestedOutput(name, {"binary_data": is_binary}) for name in ("labels", "scores")]
        request = InferRequest("nouns", [text], "r1", parameters={"k": 3}, request_outputs=outputs)
        result = await client.infer(address, request, model_name="nouns")
        assert result.id == "r1", result
        assert [each.shape for each in result.outputs] == [[2, 3], [2, 3]], result
        answers.append([np.asarray(each.data).ravel().tolist() for each in result.outputs])
    assert answers[0] == answers[1], answers
    try:
        await client.infer(address, request, model_name="nothing")
    except httpx.HTTPStatusError as error:
        assert "nothing" in str(error), error
    else:
        raise AssertionError("a model that is not there was accepted")
    await client.close()


asyncio.run(ask(sys.argv[1]))
print("kserve", version("kserve"))
