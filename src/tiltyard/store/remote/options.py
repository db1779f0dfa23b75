"""Storage options of object stores: the names that users of pylance and lancedb write, and what they mean.

A name is taken in any case, with '-' for '_'. An unknown name is refused with the nearest one: an option that
is silently dropped is a table in the wrong place or a password that is never used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tiltyard.errors import InvalidInput, nearest


class Service(Enum):
    """A kind of object store, by the name that messages use."""

    S3 = "S3"
    GCS = "Google Cloud Storage"
    AZURE = "Azure"
    HTTP = "HTTP"


class Conditions(Enum):
    """What is done about "only if nothing is there" (`tiltyard_conditions`)."""

    CHECK = "check"  # tried once before the first creation, where the service is not known to keep it
    TRUST = "trust"  # never tried
    NONE = "none"  # the store has none: look, then put; only for a table with one writer


TIMEOUT_SECONDS = 30.0
"""So long may one request take."""
CONNECT_SECONDS = 5.0
MAX_RETRIES = 4
RETRY_SECONDS = 60.0
"""After so long since the first one (s) no request is sent again."""
MAX_RETRIES_ALLOWED = 100

_S3_PLAIN = """access_key_id secret_access_key session_token region endpoint virtual_hosted_style_request
    skip_signature unsigned_payload request_payer s3_express checksum_algorithm disable_tagging
    disable_bulk_delete imdsv1_fallback metadata_endpoint role_arn role_session_name sts_endpoint
    web_identity_token_file container_credentials_relative_uri container_credentials_full_uri
    container_authorization_token_file server_side_encryption sse_kms_key_id sse_bucket_key_enabled
    sse_customer_key_base64"""
_S3_MORE = {
    "endpoint": "endpoint_url aws_endpoint_url aws_endpoint_url_s3 endpoint_override",
    "session_token": "token aws_token",
    "region": "default_region aws_default_region",
    "request_payer": "requester_pays aws_requester_pays",
}
_GCS_PLAIN = (
    "service_account service_account_key application_credentials base_url bearer_token skip_signature"
)
_GCS_MORE = {
    "service_account": "service_account_path google_service_account_path",
    "base_url": "endpoint endpoint_url",
    "bearer_token": "token storage_token google_storage_token",
}
_AZURE_PLAIN = """account_name account_key client_id client_secret tenant_id authority_host sas_key token
    use_emulator endpoint msi_endpoint object_id msi_resource_id federated_token_file use_fabric_endpoint
    use_azure_cli skip_signature disable_tagging credential_type encryption_key"""
_AZURE_MORE = {
    "account_name": "azure_storage_account_name storage_account_name",
    "account_key": """azure_storage_account_key azure_storage_access_key azure_storage_master_key access_key
        master_key""",
    "client_id": "azure_storage_client_id",
    "client_secret": "azure_storage_client_secret",
    "tenant_id": """azure_storage_tenant_id azure_storage_authority_id azure_authority_id authority_id""",
    "authority_host": "azure_storage_authority_host",
    "sas_key": "azure_storage_sas_key azure_storage_sas_token sas_token",
    "token": "azure_storage_token bearer_token",
    "use_emulator": "azure_storage_use_emulator object_store_use_emulator",
    "endpoint": "azure_storage_endpoint endpoint_url",
    "msi_endpoint": "azure_identity_endpoint identity_endpoint",
}
_CLIENT = """allow_http allow_invalid_certificates user_agent proxy_url proxy_ca_certificate proxy_excludes
    root_certificate pool_idle_timeout pool_max_idle_per_host http1_only http2_only"""
_TIMES = {
    "timeout": "timeout",
    "request_timeout": "timeout",
    "connect_timeout": "connect_timeout",
    "read_timeout": "read_timeout",
}
_RETRIES = ("client_max_retries", "download_retry_count")
_RETRY_TIME = "client_retry_timeout"
_CONDITIONS = "tiltyard_conditions"
_WITHOUT_EFFECT = ("durable", "map", "expires_at_millis", "refresh_offset_millis")
"""Taken so that one dictionary serves local stores as well, and what catalogs hand out with credentials."""

_ENVIRONMENT: Mapping[Service, Mapping[str, tuple[str, ...]]] = {
    Service.S3: {
        "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "allow_http": ("AWS_ALLOW_HTTP",),
    },
    Service.AZURE: {
        "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
        "allow_http": ("AZURE_ALLOW_HTTP", "AZURE_STORAGE_ALLOW_HTTP"),
    },
}
"""Variables that we look at ourselves; those of credentials, regions and all else obstore reads."""

_FLAG_NAMES = """allow_http allow_invalid_certificates http1_only http2_only virtual_hosted_style_request
    skip_signature unsigned_payload request_payer s3_express disable_tagging disable_bulk_delete
    imdsv1_fallback sse_bucket_key_enabled use_emulator use_fabric_endpoint use_azure_cli"""
_FLAGS = frozenset(_FLAG_NAMES.split())
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")

_ADDRESSES = frozenset(("endpoint", "base_url"))
"""Options that are the address of the service."""
_LONG = frozenset(("root_certificate", "proxy_ca_certificate", "service_account_key"))
"""Options that may have several lines."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ADDRESS = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?", re.IGNORECASE)

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|seconds?|m|min|minutes?|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _names(plain: str, prefix: str, more: Mapping[str, str]) -> dict[str, str]:
    """Every name of an option, to the one of obstore."""
    known = {name: name for name in plain.split()}
    known |= {prefix + name: name for name in plain.split()}
    known |= {alias: name for name, aliases in more.items() for alias in aliases.split()}
    return known


_OF_SERVICE = {
    Service.S3: _names(_S3_PLAIN, "aws_", _S3_MORE),
    Service.GCS: _names(_GCS_PLAIN, "google_", _GCS_MORE),
    Service.AZURE: _names(_AZURE_PLAIN, "azure_", _AZURE_MORE),
    Service.HTTP: {},
}

_READ_BY_OBSTORE: Mapping[Service, tuple[str, ...]] = {
    Service.S3: ("aws_",),
    Service.GCS: ("google_", "service_account"),
    Service.AZURE: ("azure_",),
    Service.HTTP: (),
}
"""How the names of variables of the environment begin that count: TOKEN alone is some other program's."""


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """Options that were understood. `config` and `client` are obstore's; the rest bounds our own loop.

    Times in seconds. `retries`: how often a request is sent again, at most, and not later than
    `retry_seconds` after it was first sent.
    """

    config: tuple[tuple[str, str | bool], ...] = field(default=(), repr=False)
    client: tuple[tuple[str, str | bool], ...] = ()
    timeout: float = TIMEOUT_SECONDS
    retries: int = MAX_RETRIES
    retry_seconds: float = RETRY_SECONDS
    conditions: Conditions = Conditions.CHECK
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What was given, for a process that opens the same store."""

    def get(self, name: str) -> str | bool | None:
        """An option of the service by obstore's name."""
        return dict(self.config).get(name)


def known_names(service: Service) -> list[str]:
    """Every name that an option of the service may have."""
    shared = [*_CLIENT.split(), *_TIMES, *_RETRIES, _RETRY_TIME, _CONDITIONS, *_WITHOUT_EFFECT]
    return sorted({*_OF_SERVICE[service], *shared})


def is_option(name: str) -> bool:
    """Whether some object store knows an option of this name."""
    return any(plain_name(name) in known_names(service) for service in Service)


def from_environment(
    service: Service, options: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """The options, with those of variables of the environment that are not given."""
    of_service = _OF_SERVICE[service]
    for variable, text in environment.items():
        name = plain_name(variable)
        is_read = name.startswith(_READ_BY_OBSTORE[service])
        if is_read and of_service.get(name) not in (None, *_LONG) and _CONTROL.search(text):
            raise InvalidInput(
                f"the variable {variable} of the environment has a line break or another control character: "
                "set it without"
            )
    given = {of_service.get(plain_name(name), plain_name(name)) for name in options}
    found: dict[str, Any] = dict(options)
    for target, variables in _ENVIRONMENT.get(service, {}).items():
        value = next((environment[each] for each in variables if environment.get(each)), None)
        if value is not None and target not in given:
            found[target] = value
    return found


def without(service: Service, options: Mapping[str, Any], *targets: str) -> dict[str, Any]:
    """The options but those that mean one of `targets`, by obstore's names."""
    of_service = _OF_SERVICE[service]
    return {name: value for name, value in options.items() if of_service.get(plain_name(name)) not in targets}


def parse_options(service: Service, options: Mapping[str, Any]) -> RemoteOptions:
    """The options of a store of that service. Raises InvalidInput, which names the nearest known option."""
    config: dict[str, str | bool] = {}
    client: dict[str, str | bool] = {"connect_timeout": _text(CONNECT_SECONDS)}
    named: dict[str, str] = {}
    bounds: dict[str, Any] = {}
    of_service, of_client = _OF_SERVICE[service], _CLIENT.split()
    for given, value in options.items():
        name = plain_name(given)
        target = of_service.get(name) or _TIMES.get(name) or name
        if name in _WITHOUT_EFFECT or value is None:
            continue
        if (other := named.get(target)) is not None and options[other] != value:
            raise InvalidInput(f"the storage options {other!r} and {given!r} are one, and say two things")
        named[target] = given
        if name in of_service:
            config[target] = _value(given, target, value)
        elif name in of_client:
            client[name] = _value(given, name, value)
        elif name in _TIMES:
            client[target] = _text(_seconds(given, value))
        elif name in _RETRIES:
            bounds["retries"] = max(bounds.get("retries", 0), _count(given, value))
        elif name == _RETRY_TIME:
            bounds["retry_seconds"] = _seconds(given, value)
        elif name == _CONDITIONS:
            bounds["conditions"] = _conditions(given, value)
        else:
            known = known_names(service)
            raise InvalidInput(
                f"unknown storage option {given!r} for {service.value}; {nearest(name, known)}"
            )
    _check_encrypted(config, client)
    timeout = float(str(client.setdefault("timeout", _text(TIMEOUT_SECONDS))).removesuffix("ms")) / 1000
    told = tuple(sorted((str(name), str(value)) for name, value in options.items() if value is not None))
    return RemoteOptions(
        tuple(sorted(config.items())), tuple(sorted(client.items())), timeout, **bounds, given=told
    )


def _check_encrypted(config: Mapping[str, str | bool], client: Mapping[str, str | bool]) -> None:
    """Refuse an endpoint without TLS that is not allowed: no request to it would ever be sent."""
    endpoint = str(config.get("endpoint") or config.get("base_url") or "")
    plain = endpoint.lower().startswith("http://")
    if plain and not client.get("allow_http", False) and not config.get("use_emulator", False):
        raise InvalidInput(
            f"the endpoint {endpoint!r} is without TLS: give the storage option allow_http=true (for S3, the "
            "variable AWS_ALLOW_HTTP=true) if that is meant, or an https:// endpoint"
        )


def plain_name(name: object) -> str:
    """A name as it is looked up."""
    return str(name).strip().lower().replace("-", "_")


def _value(given: str, name: str, value: Any) -> str | bool:
    if name in _FLAGS:
        word = str(value).strip().lower()
        if word in _TRUE or (name == "request_payer" and word == "requester"):
            return True
        if word in _FALSE:
            return False
        raise InvalidInput(f"the storage option {given!r} must be true or false, not {value!r}")
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise InvalidInput(f"the storage option {given!r} must be text, not {type(value).__name__}")
    text = str(value)
    if name not in _LONG and _CONTROL.search(text):
        raise InvalidInput(
            f"the storage option {given!r} has a line break or another control character: leave it out"
        )
    if name in _ADDRESSES:
        _check_address(given, text)
    return text


def _check_address(given: str, text: str) -> None:
    """An address that the library below would not even refuse, or would repeat with a password in it."""
    if "@" in text.partition("//")[2].partition("/")[0]:
        raise InvalidInput(f"the storage option {given!r} has a user in it: give credentials by options")
    if not _ADDRESS.fullmatch(text):
        raise InvalidInput(
            f"the storage option {given!r} must be the address of a server such as "
            f"'https://storage.example.org' or 'http://127.0.0.1:9000', not {text!r}"
        )


def _seconds(given: str, value: Any) -> float:
    found = None if isinstance(value, bool) else _DURATION.fullmatch(str(value).strip().lower())
    if found is None or (seconds := float(found[1]) * _UNITS[_unit(found[2])]) <= 0:
        raise InvalidInput(
            f"the storage option {given!r} must be a time such as '30s' or a number of seconds, not {value!r}"
        )
    return seconds


def _unit(word: str | None) -> str:
    return "s" if not word else word if word == "ms" else word[0]


def _text(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def _count(given: str, value: Any) -> int:
    word = str(value).strip()
    if not word.isdigit() or int(word) > MAX_RETRIES_ALLOWED:
        raise InvalidInput(
            f"the storage option {given!r} must be a whole number up to {MAX_RETRIES_ALLOWED}, not {value!r}"
        )
    return int(word)


def _conditions(given: str, value: Any) -> Conditions:
    try:
        return Conditions(str(value).strip().lower())
    except ValueError:
        words = ", ".join(repr(each.value) for each in Conditions)
        raise InvalidInput(f"the storage option {given!r} must be one of {words}, not {value!r}") from None
