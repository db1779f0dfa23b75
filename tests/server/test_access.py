"""Keys and roles: who is let in, and who may do what where."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving import ROWS, STREAM, ask, create, ipc, keys, post, serving
from tiltyard.errors import InvalidInput
from tiltyard.server.access import ENVIRONMENT, hash_of, parsed
from tiltyard.server.run import access_of

READER, WRITER, ADMIN, INNER = (
    {"x_api_key": f"{name}-secret"} for name in ("reader", "writer", "boss", "inner")
)


def test_roles_are_kept_in_every_namespace(tmp_path: Path) -> None:
    access = keys(reader="read", writer="write", boss="admin", inner="write@ops")
    with serving(tmp_path, access) as server:
        for name in ("ops", "hr"):
            assert post(server, f"namespace/{name}/create", **WRITER).status == 200
            assert create(server, f"{name}%24t", **WRITER).status == 200

        assert post(server, "table/hr%24t/count_rows", **READER).json == 3
        refused = post(server, "table/hr%24t/delete", {"predicate": "true"}, **READER)
        assert (refused.status, refused.code) == (403, 15)
        assert "'reader' has read" in refused.json["error"]
        assert post(server, "table/hr%24t/drop", **WRITER).code == 15

        assert post(server, "table/ops%24t/count_rows", **INNER).json == 3
        assert post(server, "table/ops%24t/insert", ipc(ROWS), content_type=STREAM, **INNER).status == 200
        assert post(server, "table/hr%24t/count_rows", **INNER).code == 15
        assert post(server, "table/hr%24t/insert", ipc(ROWS), content_type=STREAM, **INNER).code == 15
        assert ask(server, "GET", "/v1/table", **INNER).code == 15
        assert create(server, "ops%24mine", **INNER).status == 200
        assert create(server, "rooted", **INNER).code == 15

        assert post(server, "table/hr%24t/drop", **ADMIN).status == 200


def test_places_of_a_callers_choice_need_an_admin_of_all(tmp_path: Path) -> None:
    with serving(tmp_path, keys(writer="write", boss="admin", inner="admin@ops")) as server:
        post(server, "namespace/ops/create", **ADMIN)
        secret = create(server, "secret", **ADMIN).json["location"].rpartition("/")[2]
        for who in (WRITER, INNER):
            assert post(server, "table/ops%24x/register", {"location": secret}, **who).code == 15
            assert post(server, "table/ops%24x/declare", {"location": secret}, **who).code == 15
            batch = {"operations": [{"declare_table": {"id": ["ops", "x"], "location": secret}}]}
            assert post(server, "table/batch-commit", batch, **who).code == 15
        moved = {"new_table_name": "x", "new_namespace_id": []}
        post(server, "table/ops%24t/declare", **INNER)
        assert post(server, "table/ops%24t/rename", moved, **INNER).code == 15
        batch = {"operations": [{"deregister_table": {"id": ["secret"]}}]}
        assert post(server, "table/batch-commit", batch, **INNER).code == 15
        assert post(server, "table/secret/exists", **ADMIN).status == 200


def test_what_the_body_says_gives_no_rights(tmp_path: Path) -> None:
    with serving(tmp_path, keys(writer="write", boss="admin", inner="admin@ops")) as server:
        for name in ("ops", "hr"):
            post(server, f"namespace/{name}/create", **ADMIN)
            create(server, f"{name}%24t", **ADMIN)
        for method in ("GET", "POST"):
            assert ask(server, method, "/v1/table", {"id": ["ops"]}, **INNER).code == 15
        for said in ({"id": ["ops"]}, {"id": ["ops"], "namespace": ["ops"]}):
            assert post(server, "table/hr%24t/count_rows", said, **INNER).code in (13, 15)
            assert post(server, "namespace/%24/table/list", said, **INNER).code in (13, 15)
        assert post(server, "table/t/count_rows?delimiter=s", {"id": ["ops", "t"]}, **INNER).code in (13, 15)


def test_what_drops_needs_an_admin(tmp_path: Path) -> None:
    with serving(tmp_path, keys(writer="write", boss="admin")) as server:
        post(server, "namespace/ops/create", **WRITER)
        create(server, "ops%24t", **WRITER)
        for mode in ("Overwrite", "OVERWRITE", "over_write"):
            assert post(server, "namespace/ops/create", {"mode": mode}, **WRITER).code == 15
        assert post(server, "namespace/ops/create", {"mode": "ExistOk"}, **WRITER).status == 200
        for path in ("branches/delete", "drop", "deregister", "rename", "version/delete"):
            assert post(server, f"table/ops%24t/{path}", {"name": "b"}, **WRITER).code == 15
        assert post(server, "table/ops%24t/count_rows", **WRITER).json == 3
        assert post(server, "namespace/ops/create", {"mode": "Overwrite"}, **ADMIN).status == 200
        assert post(server, "table/ops%24t/exists", **ADMIN).code == 4


def test_nobody_comes_in_without_a_key(tmp_path: Path) -> None:
    with serving(tmp_path, keys(reader="read")) as server:
        for headers in (
            {},
            {"x_api_key": "wrong"},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic x"},
        ):
            heard = post(server, "namespace/%24/exists", **headers)  # type: ignore[arg-type]
            assert (heard.status, heard.code) == (401, 16)
            assert heard.headers["www-authenticate"] == "Bearer"
            assert "wrong" not in heard.json["error"]
        assert post(server, "namespace/%24/exists", authorization="Bearer reader-secret").status == 200
        assert post(server, "namespace/%24/exists", {"identity": {"api_key": "reader-secret"}}).status == 401
        assert ask(server, "GET", "/healthz").status == 200
        assert ask(server, "GET", "/readyz").status == 200
        for page in ("/metrics", "/openapi.json"):
            assert ask(server, "GET", page).status == 401
            assert ask(server, "GET", page, **READER).status == 200


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "one [[keys]] table or more"),
        ("x = 1", "one [[keys]] table or more"),
        ("[[keys]", "no TOML"),
        ('[[keys]]\nname = "a"', "needs 'sha256'"),
        ('[[keys]]\nname = "a"\nsha256 = "12"\nrole = "read"', "64 hexadecimal digits"),
        (f'[[keys]]\nname = "a"\nsha256 = "{"g" * 64}"\nrole = "read"', "64 hexadecimal digits"),
        (f'[[keys]]\nsha256 = "{"0" * 64}"\nrole = "read"', "needs a 'name'"),
        (f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"', "may do nothing"),
        (f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\nrole = "root"', "one of read, write, admin"),
        (f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\nrule = "read"', "found rule"),
        (f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\n[keys.namespaces]\n"a$" = "read"', "no id"),
        (f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\nrole = "read"\n' * 2, "the same name"),
    ],
)
def test_files_of_keys_that_are_wrong_are_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match="the file") as caught:
        parsed(text, "the file")
    assert told in str(caught.value)
    assert "0" * 64 not in str(caught.value)


def test_only_this_machine_is_served_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    assert access_of(None, "127.0.0.1", False).is_open
    assert access_of(None, "0.0.0.0", True).is_open
    with pytest.raises(InvalidInput, match="everybody could read and change"):
        access_of(None, "0.0.0.0", False)
    text = f'[[keys]]\nname = "a"\nsha256 = "{hash_of("s")}"\nrole = "read"'
    monkeypatch.setenv(ENVIRONMENT, text)
    assert not access_of(None, "0.0.0.0", False).is_open
    with pytest.raises(InvalidInput, match="contradict"):
        access_of(None, "0.0.0.0", True)


def test_secrets_of_the_storage_are_given_out_only_where_that_is_said(tmp_path: Path) -> None:
    secret = {"storage.secret_access_key": "hush", "storage.access_key_id": "me"}
    with serving(tmp_path / "a", **secret) as server:
        for heard in (create(server, "t"), post(server, "table/t/describe"), post(server, "table/u/declare")):
            assert heard.status == 200
            assert b"hush" not in heard.body
    with serving(tmp_path / "b", vend_input_storage_options="true", **secret) as server:
        assert post(server, "table/u/declare").json["storage_options"]["secret_access_key"] == "hush"
