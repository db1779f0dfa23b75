"""The OpenAPI document, and what a fuzzer asks that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from serving import ask, create, post, serving
from tiltyard.catalog.rest.routes import ROUTES
from tiltyard.server.adapter import InThread


@schemathesis.serializer("application/vnd.apache.arrow.stream")
def arrow_stream(context: Any, value: Any) -> Any:
    """Bytes as they come: few of them are a stream."""
    return value if isinstance(value, bytes) else str(value).encode()


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with serving(tmp_path_factory.mktemp("lake")) as running:
        post(running, "namespace/n/create")
        create(running, "n%24t")
        create(running, "t")
        yield running


@pytest.fixture(scope="module")
def schema(server: InThread) -> Any:
    return schemathesis.openapi.from_url(f"{server.uri}/openapi.json")


def test_every_route_is_told(server: InThread) -> None:
    told = ask(server, "GET", "/openapi.json").json
    assert told["openapi"].startswith("3.")
    operations = {each["operationId"]: each for path in told["paths"].values() for each in path.values()}
    assert {route.operation for route in ROUTES} <= set(operations)
    names = {name for each in told["components"]["schemas"].values() for name in each.get("properties", {})}
    assert "identity" not in names
    asked = operations["merge_insert_into_table"]
    assert {each["name"] for each in asked["parameters"]} >= {"id", "on", "delimiter", "use_index"}


def fuzz(schema: Any, uri: str, examples: int) -> None:
    """Ask every operation some of what its description allows, with ids that are there and that are not."""
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def asked(case: Any) -> None:
            case.call_and_validate(base_url=uri, checks=CHECKS)

        asked()


def test_no_request_that_the_document_allows_breaks_the_server(server: InThread, schema: Any) -> None:
    fuzz(schema, server.uri, 2)
    assert ask(server, "GET", "/readyz").status == 200


@pytest.mark.soak
def test_no_request_that_the_document_allows_breaks_the_server_at_length(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        create(running, "t")
        fuzz(schemathesis.openapi.from_url(f"{running.uri}/openapi.json"), running.uri, 200)
