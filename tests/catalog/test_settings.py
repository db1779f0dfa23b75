"""Settings of a catalog, from properties as the official package takes them."""

from __future__ import annotations

import pytest

from tiltyard.catalog import open_catalog
from tiltyard.catalog.settings import DEFAULT_COMMIT_RETRIES, Mode, Settings
from tiltyard.errors import InvalidInput, WrongType


@pytest.mark.parametrize(
    ("properties", "mode"),
    [
        ({}, Mode.MIXED),
        ({"manifest_enabled": "false"}, Mode.V1),
        ({"manifest_enabled": "No", "dir_listing_enabled": "0"}, Mode.V1),
        ({"dir_listing_enabled": "OFF"}, Mode.MANIFEST),
        ({"dir_listing_to_manifest_migration_enabled": "y"}, Mode.MIGRATION),
        ({"manifest_enabled": "f"}, Mode.MIXED),
        ({"manifest_enabled": ""}, Mode.MIXED),
        ({"manifest_enabled": " false "}, Mode.MIXED),
        ({"manifest_enabled": False}, Mode.V1),
    ],
)
def test_the_mode_follows_from_three_flags(properties: dict[str, str], mode: Mode) -> None:
    """Words as in the fact pack, section 3: what is no such word keeps the default."""
    assert Settings.parse(properties).mode is mode


def test_other_properties_have_their_defaults_and_unknown_ones_are_left_aside() -> None:
    plain = Settings.parse({"root": "/x", "credential_vendor.enabled": "true", "commit_retries": "many"})
    assert plain == Settings.parse(None) == Settings()
    given = Settings.parse(
        {
            "commit_retries": "3",
            "storage.region": "eu",
            "storage.aws.key": "k",
            "table_version_tracking_enabled": "1",
            "vend_input_storage_options": "on",
            "vend_input_storage_options_refresh_interval_millis": "60000",
            "tiltyard.grace_seconds": "0.5",
        }
    )
    assert (given.commit_retries, given.grace_seconds) == (3, 0.5)
    assert given.storage == {"region": "eu", "aws.key": "k"}
    assert given.table_version_tracking
    assert given.vend_input_storage_options
    assert given.refresh_interval_millis == 60000


@pytest.mark.parametrize("properties", [["a"], {"a": None}, {3: "x"}, {"a": ["b"]}])
def test_properties_are_text(properties: object) -> None:
    with pytest.raises(WrongType):
        Settings.parse(properties)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_grace_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="number of seconds"):
        Settings.parse({"tiltyard.grace_seconds": text})


def test_numbers_beyond_all_measure_are_told_or_leave_the_default() -> None:
    assert Settings.parse({"commit_retries": "9" * 5000}).commit_retries == DEFAULT_COMMIT_RETRIES
    for properties in ({"commit_retries": 10**5000}, {"tiltyard.grace_seconds": "1e300"}):
        with pytest.raises(InvalidInput):
            Settings.parse(properties)
    with pytest.raises(InvalidInput, match="half a surrogate pair"):
        open_catalog("\ud800")
