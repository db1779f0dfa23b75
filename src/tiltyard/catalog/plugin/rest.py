"""`RestNamespace`: a catalog behind a server as `lance_namespace` knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import lance_namespace as interface
import lance_namespace_urllib3_client.models as models

from tiltyard.catalog.plugin.context import provider_of
from tiltyard.catalog.plugin.errors import as_interface_error
from tiltyard.catalog.plugin.metrics import Metrics
from tiltyard.catalog.plugin.requests import Given
from tiltyard.catalog.plugin.rows import QueryAnswer
from tiltyard.catalog.plugin.tables import NamespaceNames, TableNames
from tiltyard.catalog.rest.client import Outcome, RestClient
from tiltyard.catalog.rest.routes import DELIMITER, ROUTES, Body, Gives, Route
from tiltyard.catalog.rest.transport import Tls
from tiltyard.catalog.settings import FALSE, TRUE
from tiltyard.dataset.arguments import shown
from tiltyard.errors import InvalidInput, TiltyardError

HEADERS = ("header.", "headers.")
NAMES: dict[str, Any] = {
    "list_namespaces": NamespaceNames,
    "list_tables": TableNames,
    "list_all_tables": TableNames,
}


class RestNamespace(interface.LanceNamespace):
    """A catalog behind a server of the REST namespace specification, ours or another.

        lance_namespace.connect("tiltyard.lance.namespace.RestNamespace", {"uri": "https://lake.example.com"})

    Properties: `uri`; `header.<name>` for headers, such as `header.authorization`; `delimiter`;
    `tls.ssl_ca_cert`, `tls.cert_file`, `tls.key_file`, `tls.assert_hostname`; `ops_metrics_enabled`;
    `dynamic_context_provider.impl` and its own. Requests are models of the interface or mappings, answers are
    its models, errors are of `tiltyard.errors` and of `lance_namespace` at once. Safe to share among threads;
    pickles by its properties. No request is made before the first call.
    """

    def __init__(self, session: Any = None, context_provider: Any = None, **properties: Any) -> None:
        given = {str(key): str(value) for key, value in properties.items()}
        if not given.get("uri"):
            raise InvalidInput("a RestNamespace needs the property 'uri': http://... or https://...")
        self._properties = given
        self._provider = provider_of(given) if context_provider is None else context_provider
        self._metrics = Metrics(given.get("ops_metrics_enabled", "").lower() in TRUE)
        self._client = client_of(given, None if self._provider is None else self._context)

    def namespace_id(self) -> str:
        """What tells this catalog from others."""
        return f'RestNamespace {{ endpoint: "{self._client.uri}", delimiter: "{self._delimiter}" }}'

    @property
    def _delimiter(self) -> str:
        return self._properties.get("delimiter", DELIMITER)

    def __repr__(self) -> str:
        return f"RestNamespace({self.namespace_id()})"

    def __reduce__(self) -> Any:
        return _opened, (self._properties, self._provider)

    def retrieve_ops_metrics(self) -> dict[str, int]:
        """How often each operation was asked for; empty unless `ops_metrics_enabled` is true."""
        return self._metrics.counts()

    def reset_ops_metrics(self) -> None:
        """Count anew."""
        self._metrics.reset()

    def _context(self, operation: str, object_id: str) -> Mapping[str, str]:
        """The headers that the provider of context gives for one request."""
        found = self._provider.provide_context({"operation": operation, "object_id": object_id})
        return headers_in({str(key): str(value) for key, value in dict(found or {}).items()})

    def _call(self, route: Route, request: Any, data: Any = None) -> Any:
        try:
            self._metrics.count(route.operation)
            given = Given(route.operation, request)
            return _answer(route, self._client.call(route.operation, *_sent(given, data)))
        except TiltyardError as error:
            raise as_interface_error(error) from error


def client_of(
    properties: Mapping[str, str], context: Callable[[str, str], Mapping[str, str]] | None = None
) -> RestClient:
    """The client of the server that properties name."""
    return RestClient(
        properties["uri"],
        headers_in(properties),
        delimiter=properties.get("delimiter", DELIMITER),
        tls=_tls(properties),
        context=context,
    )


def headers_in(properties: Mapping[str, str]) -> dict[str, str]:
    """The headers that properties or a context name, by `header.` or `headers.`."""
    return {
        key.removeprefix(prefix).lower(): value
        for prefix in HEADERS
        for key, value in properties.items()
        if key.startswith(prefix) and len(key) > len(prefix)
    }


def _sent(given: Given, data: Any) -> tuple[dict[str, Any], Any, dict[str, str]]:
    """The fields, the rows, and the headers that the identity and the context of a request ask for."""
    fields = given.fields()
    id = given.maybe_id()
    if id is not None:
        fields["id"] = list(id)
    identity = given.inner("identity")
    fields.pop("identity", None)  # it travels in headers, which logs keep to themselves
    headers = headers_in(given.text_map("context") or {})
    if (key := identity.get("api_key")) is not None:
        headers["x-api-key"] = str(key)
    if (token := identity.get("auth_token")) is not None:
        headers["authorization"] = f"Bearer {token}"
    return fields, data, headers


def _answer(route: Route, outcome: Outcome) -> Any:
    context = {f"header.{name}": value for name, value in outcome.headers.items()}
    match route.gives:
        case Gives.TEXT:
            return outcome.value
        case Gives.ROWS:
            made = QueryAnswer(outcome.value)
            made.context = context
            return made
        case Gives.COUNT:
            return interface.CountTableRowsResponse(count=outcome.value, context=context)
        case Gives.MAP:
            return interface.UpdateTableSchemaMetadataResponse(metadata=outcome.value, context=context)
        case Gives.NOTHING:
            return getattr(models, route.answer)(context=context)
        case Gives.MODEL:
            kind = NAMES.get(route.operation) or getattr(models, route.answer)
            made = kind.from_dict(outcome.value)
            made.context = context
            return made


def _tls(properties: Mapping[str, str]) -> Tls:
    checks = properties.get("tls.assert_hostname", "true").lower()
    if checks not in TRUE | FALSE:
        raise InvalidInput(f"tls.assert_hostname is true or false, found {shown(checks)}")
    certificate, key = properties.get("tls.cert_file"), properties.get("tls.key_file")
    if (certificate is None) != (key is None):
        raise InvalidInput("tls.cert_file and tls.key_file are given together")
    return Tls(properties.get("tls.ssl_ca_cert"), certificate, key, checks in TRUE)


def _opened(properties: dict[str, str], provider: Any) -> RestNamespace:
    return RestNamespace(context_provider=provider, **properties)


def _method(route: Route) -> Any:
    """The interface's method of a route."""

    def with_rows(self: RestNamespace, request: Any = None, request_data: Any = None) -> Any:
        return self._call(route, request, request_data)

    def plain(self: RestNamespace, request: Any = None) -> Any:
        return self._call(route, request)

    made: Any = with_rows if route.body is Body.ROWS else plain
    made.__name__ = route.operation
    made.__qualname__ = f"RestNamespace.{route.operation}"
    made.__doc__ = f"{route.methods[0]} /v1/{route.path}."
    return made


for _route in ROUTES:
    setattr(RestNamespace, _route.operation, _method(_route))
