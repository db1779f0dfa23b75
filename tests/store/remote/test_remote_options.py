"""Locations and options of object stores, as users of pylance and lancedb write them. Nothing is asked of any
service here.
"""

from __future__ import annotations

import itertools
import pickle
import sys
from datetime import UTC, datetime
from subprocess import run
from typing import Any

import pytest

from tiltyard.errors import InvalidInput, InvalidUri, StoreUnavailable, UnsupportedFeature
from tiltyard.store import object_key, open_other, open_store
from tiltyard.store.remote.options import Conditions, RemoteOptions, Service, is_option, parse_options
from tiltyard.store.remote.store import RemoteStore

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def _of(service: Service, **options: Any) -> RemoteOptions:
    return parse_options(service, options)


def _remote(uri: str, **options: Any) -> RemoteStore:
    store = open_store(uri, options)
    assert isinstance(store, RemoteStore)
    return store


@pytest.mark.parametrize(
    ("uri", "service", "bucket", "key"),
    [
        ("s3://b/x/y.lance", Service.S3, "b", "x/y.lance/k"),
        ("s3://b", Service.S3, "b", "k"),
        ("S3A://b/x/", Service.S3, "b", "x/k"),
        ("gs://b/x", Service.GCS, "b", "x/k"),
        ("gcs://b/x", Service.GCS, "b", "x/k"),
        ("az://c/x", Service.AZURE, "c", "x/k"),
        ("abfss://c@account.dfs.core.windows.net/x", Service.AZURE, "c", "x/k"),
        ("https://host:8080/x/y.lance", Service.HTTP, "https://host:8080/x/y.lance", "k"),
        ("s3://b/a b%20c%2523+ü.lance", Service.S3, "b", "a b c%23+ü.lance/k"),
        ("s3://b/q%3Fuery%23f", Service.S3, "b", "q?uery#f/k"),
    ],
)
def test_a_location_names_service_bucket_and_key(uri: str, service: Service, bucket: str, key: str) -> None:
    store = _remote(uri)
    assert (store.client.service, store.client.bucket, store.full("k")) == (service, bucket, key)
    again = open_store(store.uri)  # what a store calls itself names the same place
    assert isinstance(again, RemoteStore)
    assert (again.full("k"), again.client) == (key, store.client)
    if service is not Service.HTTP:
        assert object_key(store, "k") == key


def test_an_azure_location_names_the_account() -> None:
    store = _remote("abfss://c@account.dfs.core.windows.net/x", account_key="a2V5")
    assert store.client.options.get("account_name") == "account"
    fabric = _remote("abfss://c@one.dfs.fabric.microsoft.com/x")
    assert fabric.client.options.get("use_fabric_endpoint") is True


def test_a_base_in_another_account_is_opened_there() -> None:
    first = _remote("abfss://c@one.dfs.core.windows.net/x", azure_storage_account_name="one", sas_token="s")
    other = open_other(first, "abfss://c@two.dfs.core.windows.net/x")
    assert isinstance(other, RemoteStore)
    assert other.client.options.get("account_name") == "two"
    assert other.client.options.get("sas_key") == "s"


@pytest.mark.parametrize(
    ("uri", "option"), [("s3://b/x", "endpoint"), ("gs://b/x", "base_url"), ("az://c/x", "account_name")]
)
def test_equal_locations_in_different_places_are_different_stores(uri: str, option: str) -> None:
    one, same, other = (
        _remote(uri, **{option: value}) for value in ("https://one", "https://one", "https://two")
    )
    assert one.identity == same.identity
    assert one.at("d").identity != other.at("d").identity
    assert one.at("d").identity != one.identity


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "https://", "abfss://@account/x"])
def test_a_location_without_a_bucket_is_refused(uri: str) -> None:
    with pytest.raises(InvalidUri, match="names no"):
        open_store(uri)


@pytest.mark.parametrize("uri", ["s3://b/%E4", "gs://b/x/%ff%fe", "file:///tmp/%E4", "memory://name/%E4"])
def test_bytes_that_are_no_text_are_no_location(uri: str) -> None:
    """They would all become one name."""
    with pytest.raises(InvalidUri, match=r"not UTF-8 .*write %25"):
        open_store(uri)


@pytest.mark.parametrize("uri", ["s3://b/a?b", "s3://b/a#b"])
def test_signs_that_cut_a_location_short_have_to_be_encoded(uri: str) -> None:
    with pytest.raises(InvalidUri, match="write %"):
        open_store(uri)


@pytest.mark.parametrize(
    ("service", "option", "name"),
    [
        *(
            (Service.S3, each, "access_key_id")
            for each in ("aws_access_key_id", "access_key_id", "ACCESS_KEY_ID")
        ),
        *((Service.S3, each, "secret_access_key") for each in ("aws_secret_access_key", "secret-access-key")),
        *(
            (Service.S3, each, "session_token")
            for each in ("aws_session_token", "session_token", "aws_token")
        ),
        *((Service.S3, each, "region") for each in ("aws_region", "region", "aws_default_region")),
        *(
            (Service.S3, each, "endpoint")
            for each in ("aws_endpoint", "endpoint", "endpoint_url", "AWS_ENDPOINT_URL")
        ),
        (Service.S3, "aws_server_side_encryption", "server_side_encryption"),
        *((Service.GCS, each, "service_account") for each in ("service_account", "google_service_account")),
        *((Service.GCS, each, "bearer_token") for each in ("google_storage_token", "token")),
        (Service.GCS, "google_application_credentials", "application_credentials"),
        *((Service.AZURE, each, "account_name") for each in ("account_name", "azure_storage_account_name")),
        *((Service.AZURE, each, "account_key") for each in ("azure_storage_account_key", "access_key")),
        *((Service.AZURE, each, "sas_key") for each in ("azure_storage_sas_token", "sas_token", "sas_key")),
        *((Service.AZURE, each, "tenant_id") for each in ("azure_tenant_id", "azure_storage_authority_id")),
    ],
)
def test_every_name_of_an_option_means_one_thing(service: Service, option: str, name: str) -> None:
    value = "https://v" if name == "endpoint" else "v"
    assert parse_options(service, {option: value}).config == ((name, value),)
    assert is_option(option)


@pytest.mark.parametrize(
    ("service", "option"),
    [(service, name) for service in Service for name in ("virtual_hosted_style_request", "use_emulator")],
)
def test_switches_are_read_as_words(service: Service, option: str) -> None:
    known = {Service.S3: "virtual_hosted_style_request", Service.AZURE: "use_emulator"}.get(service)
    if option != known:
        with pytest.raises(InvalidInput, match=f"unknown storage option '{option}' for {service.value}"):
            parse_options(service, {option: "true"})
        return
    for word in ("true", "True", "1", True):
        assert parse_options(service, {option: word}).get(option) is True
    assert parse_options(service, {option: "false"}).get(option) is False
    with pytest.raises(InvalidInput, match="true or false"):
        parse_options(service, {option: "maybe"})


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="'aws_acces_key' for S3; nearest: aws_access_key_id"):
        _of(Service.S3, aws_acces_key="x")
    with pytest.raises(InvalidInput, match="unknown storage option 'aws_region' for Google"):
        _of(Service.GCS, aws_region="x")
    with pytest.raises(InvalidInput, match="unknown storage option 'regiom' for S3; nearest: region"):
        open_store("s3://b/x", {"regiom": "eu"})


def test_two_names_of_one_option_must_agree() -> None:
    assert _of(Service.S3, region="eu", aws_region="eu").get("region") == "eu"
    with pytest.raises(InvalidInput, match="'region' and 'aws_region' are one"):
        _of(Service.S3, region="eu", aws_region="us")


def test_bounds_of_requests() -> None:
    found = _of(
        Service.S3, timeout="2.5s", client_max_retries="7", client_retry_timeout=9, connect_timeout="100ms"
    )
    assert (found.timeout, found.retries, found.retry_seconds) == (2.5, 7, 9.0)
    assert dict(found.client)["connect_timeout"] == "100ms"
    assert _of(Service.S3, request_timeout="2 minutes").timeout == 120
    for wrong in (
        {"timeout": "soon"},
        {"timeout": 0},
        {"client_max_retries": -1},
        {"client_max_retries": "x"},
    ):
        with pytest.raises(InvalidInput, match="must be"):
            parse_options(Service.S3, wrong)


def test_conditions_are_checked_unless_told_otherwise() -> None:
    assert _of(Service.S3).conditions is Conditions.CHECK
    assert _of(Service.S3, tiltyard_conditions="none").conditions is Conditions.NONE
    with pytest.raises(InvalidInput, match="'check', 'trust', 'none'"):
        _of(Service.S3, tiltyard_conditions="maybe")


@pytest.mark.parametrize(
    ("uri", "option"), [("s3://b/x", "aws_endpoint"), ("gs://b/x", "base_url"), ("az://c/x", "endpoint")]
)
def test_an_endpoint_without_tls_is_refused_unless_it_is_allowed(
    uri: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "AZURE_STORAGE_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    for more in ({}, {"allow_http": "false"}):
        with pytest.raises(InvalidInput, match=r"'http://here' is without TLS: .* allow_http=true"):
            _remote(uri, **{option: "http://here"}, **more)
    _remote(uri, **{option: "http://here"}, allow_http="true")
    _remote(uri, **{option: "https://here"})


def test_variables_of_the_environment_say_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://there")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    store = _remote("s3://b/x")
    assert store.client.options.get("endpoint") == "http://there"
    assert dict(store.client.options.client)["allow_http"] is True
    assert _remote("s3://b/x", aws_endpoint="http://here").client.options.get("endpoint") == "http://here"
    assert _remote("gs://b/x").client.options.get("endpoint") is None


@pytest.mark.parametrize(
    "option", ["aws_access_key_id", "aws_secret_access_key", "session_token", "user_agent"]
)
def test_line_breaks_in_credentials_are_refused_without_telling_them(option: str) -> None:
    """The library below would end the thread, or sign what the server does not see."""
    with pytest.raises(InvalidInput, match=f"'{option}' has a line break") as caught:
        open_store("s3://b/x", {option: "secretvalue\n"})
    assert "secretvalue" not in str(caught.value)
    assert _of(Service.S3, root_certificate="-----BEGIN\nx\n").client


def test_line_breaks_in_the_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secretvalue\n")
    with pytest.raises(InvalidInput, match="variable AWS_SESSION_TOKEN of the environment") as caught:
        open_store("s3://b/x")
    assert "secretvalue" not in str(caught.value)
    open_store("gs://b/x")


@pytest.mark.parametrize("variable", ["TOKEN", "SESSION_TOKEN", "ENDPOINT", "REGION", "CLIENT_SECRET"])
def test_variables_of_other_programs_do_no_harm(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "read from a file\n")
    for uri in ("s3://b/x", "gs://b/x", "az://c@account/x"):
        open_store(uri)


@pytest.mark.parametrize(
    "address", ["localhost:9000", "not a url", "ftp://x", "http://", "http://x/y?z=1", ""]
)
def test_an_endpoint_is_the_address_of_a_server(address: str) -> None:
    with pytest.raises(
        InvalidInput, match="'aws_endpoint' must be the address of a server such as 'https://"
    ):
        open_store("s3://b/x", {"aws_endpoint": address})
    assert _of(Service.S3, endpoint="https://x:9/y").get("endpoint") == "https://x:9/y"


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://user:hidden@b/x", {}),
        ("https://user:hidden@server/x", {}),
        ("az://c/x?sv=1&sig=hidden", {}),
        ("s3://b/x", {"endpoint": "http://user:hidden@x"}),
    ],
)
def test_passwords_in_locations_are_refused_and_not_repeated(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="by options") as caught:
        open_store(uri, options)
    assert "hidden" not in str(caught.value)


def test_a_listing_that_comes_round_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    page = [{"path": f"x/{at:04}", "size": 1, "e_tag": None, "last_modified": WHEN} for at in range(1000)]
    monkeypatch.setattr(obstore, "list", lambda *args, **more: itertools.repeat(page))
    store = _remote(
        "s3://b/x", client_max_retries=0, timeout="100ms", endpoint="http://127.0.0.1:9", allow_http=True
    )
    with pytest.raises(StoreUnavailable, match="comes to 'x/0999' again"):
        store.list()


def test_options_of_local_stores_and_of_handed_out_credentials_do_no_harm() -> None:
    assert _of(Service.S3, durable=False, map=True, expires_at_millis="1").config == ()


def test_a_store_travels_to_another_process() -> None:
    store = _remote("s3://b/a%2520b", aws_access_key_id="k", aws_secret_access_key="s")
    again = pickle.loads(pickle.dumps(store.at("deep")))
    assert (again.uri, again.full("x"), again.client) == (f"{store.uri}/deep", "a%20b/deep/x", store.client)
    assert "'k'" not in repr(store.client.options)


def test_a_web_server_is_only_read() -> None:
    store = _remote("http://127.0.0.1:1/x")
    for call in (lambda: store.create("x", b""), lambda: store.put("x", b""), lambda: store.writer("x")):
        with pytest.raises(UnsupportedFeature, match="only read"):
            call()


def test_a_local_table_loads_nothing_of_object_stores() -> None:
    program = """
import sys, tempfile, pyarrow as pa
import tiltyard.lance as lance
where = tempfile.mkdtemp() + "/t"
lance.write_dataset(pa.table({"a": [1]}), where)
lance.dataset(where).to_table()
print([name for name in sys.modules if name.startswith(("obstore", "tiltyard.store.remote"))])
"""
    told = run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
