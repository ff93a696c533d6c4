"""Requests made of the OpenAPI document: whatever is sent, the service answers as it says, and never with a 5xx."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.serve.conftest import Client


@pytest.mark.slow
def test_every_answer_is_as_described(serve: Client, topics: Path) -> None:
    client: Any = serve(topics, learn=True)
    schema = schemathesis.openapi.from_asgi("/openapi.json", client.app)
    statuses: Counter[int] = Counter()
    for result in schema.include(path_regex="^/(v1|v2|hf|tei|label-studio)/").get_all_operations():
        operation = result.ok()  # type: ignore[union-attr]
        if operation.path == "/v1/models/{model_id}/learn":
            continue  # starts a process

        # A label, a rule or a version that a document allows need not be one of the model's.
        @settings(max_examples=40, suppress_health_check=list(HealthCheck), derandomize=True)
        @given(operation.as_strategy())
        def check(case: Any) -> None:
            for name in {"model_id", "project_id", "model_name"} & case.path_parameters.keys():
                case.path_parameters[name] = "topics"
            response = case.call_and_validate(session=client, excluded_checks=[positive_data_acceptance])
            statuses[response.status_code] += 1

        check()
    assert statuses[200] > 100, statuses
