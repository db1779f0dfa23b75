"""What a cleanup removes and leaves: the choice itself, against a model of reachability."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import CleanupRefused, InvalidCleanup, VersionNotFound
from tiltyard.format import names
from tiltyard.table.cleanup.reachable import Named, NamedByVersions, key_of, kind_of
from tiltyard.table.cleanup.select import (
    DAY_NS,
    GRACE_NS,
    YOUNG_NS,
    File,
    Pin,
    Policy,
    Selection,
    Survey,
    Version,
    select,
)
from tiltyard.table.wording import span_text

NOW = 1_000 * DAY_NS
HARD = Policy(older_than_ns=0, refuse_tagged=False)


def data(n: int) -> str:
    return names.data_path(names.data_file_name(n.to_bytes(16, "big")))


@dataclass(frozen=True)
class Given:
    """A version and what it names."""

    version: Version
    named: Named


def version(number: int, *files: str, age: int = 30 * DAY_NS) -> Given:
    path = names.manifest_path(number)
    return Given(Version(number, path, 100, NOW - age, NOW - age), Named(frozenset(files)))


def survey(*given: Given, files: tuple[File, ...] | None = None, **more: object) -> Survey:
    named = NamedByVersions()
    for each in given:
        named.add(each.version.version, each.named)
    if files is None:
        paths = {path for each in given for path in each.named.own}
        files = tuple(File(path, 10, NOW - 30 * DAY_NS) for path in sorted(paths))
    versions = tuple(each.version for each in given)
    manifests = tuple(File(each.path, each.size, each.mtime_ns) for each in versions)
    found = Survey(NOW, versions[-1].version, versions, named, files + manifests)
    return replace(found, **more)  # type: ignore[arg-type]


def gone(selection: Selection) -> list[int]:
    return [each.version.version for each in selection.versions if each.goes]


def gone_files(selection: Selection) -> set[str]:
    return {each.path for each in selection.files if each.goes and each.kind != "manifest"}


def test_only_what_old_versions_alone_name_goes() -> None:
    found = select(survey(version(1, data(1), data(2)), version(2, data(2)), version(3, data(3))), HARD)
    assert gone(found) == [1, 2]
    assert gone_files(found) == {data(1), data(2)}


def test_the_newest_version_and_the_one_asked_through_stay() -> None:
    found = select(survey(version(1), version(2), version(3), read_version=2), HARD)
    assert gone(found) == [1]


def test_all_that_is_asked_for_must_agree() -> None:
    versions = [version(n, age=(10 - n) * DAY_NS) for n in range(1, 8)]
    asked = Policy(older_than_ns=4 * DAY_NS, retain_versions=2, versions=frozenset((2, 6, 7)))
    assert gone(select(survey(*versions), asked)) == [2]
    assert gone(select(survey(*versions), replace(asked, versions=None))) == [1, 2, 3, 4, 5]


def test_without_an_age_the_last_hour_stays_and_the_account_says_until_when() -> None:
    versions = [version(1, age=2 * YOUNG_NS), version(2, age=YOUNG_NS // 2), version(3, age=0)]
    found = select(survey(*versions), Policy(retain_versions=1))
    assert gone(found) == [1]
    assert found.versions[1].until_ns == NOW + YOUNG_NS // 2
    assert "1 hour" in found.versions[1].reason


def slept(number: int, content: int, name: int) -> Given:
    """A version whose content is so old, and its name."""
    made = version(number, age=content)
    return replace(made, version=replace(made.version, named_ns=NOW - name))


def test_the_age_of_a_version_counts_from_its_name() -> None:
    """A writer slept for a day between content and name: whoever reads the version has just met it."""
    versions = [version(1, age=9 * DAY_NS), slept(2, DAY_NS, YOUNG_NS // 2), version(3, age=0)]
    found = select(survey(*versions), Policy(older_than_ns=YOUNG_NS))
    assert gone(found) == [1]
    assert found.versions[1].until_ns == NOW + YOUNG_NS // 2


def test_a_change_of_owner_does_not_make_versions_young_again() -> None:
    """It moves the only time of a name that a file system has; the content of the next version bounds it."""
    versions = [slept(number, (10 - number) * DAY_NS, 0) for number in range(1, 5)]
    assert gone(select(survey(*versions), Policy(older_than_ns=7 * DAY_NS))) == [1, 2]


def test_versions_named_by_number_go_whatever_their_age() -> None:
    assert gone(select(survey(version(1, age=0), version(2, age=0)), Policy(versions=frozenset((1,))))) == [1]


def test_a_file_stays_until_the_last_version_that_names_it_may_go() -> None:
    versions = [version(1, data(1), age=9 * DAY_NS), version(2, data(1), age=8 * DAY_NS), version(3, age=0)]
    found = select(survey(*versions), Policy(older_than_ns=10 * DAY_NS))
    fate = next(each for each in found.files if each.path == data(1))
    assert not fate.goes
    assert fate.until_ns == NOW + 2 * DAY_NS
    assert "1 to 2" in fate.reason


def test_a_tag_on_a_version_that_would_go_is_an_error_that_names_it() -> None:
    pinned = survey(version(1), version(2), pins={1: (Pin("tag 'gold' names it", "gold"),)})
    with pytest.raises(CleanupRefused, match="'gold' on version 1"):
        select(pinned, replace(HARD, refuse_tagged=True))
    assert gone(select(pinned, HARD)) == []


def test_tags_of_clones_and_branches_hold_versions_silently() -> None:
    pins = {
        1: (Pin("tag 'clone-x' names it", "clone-x", counts=False),),
        2: (Pin("branch 'dev' starts from it"),),
    }
    pinned = survey(version(1), version(2), version(3), version(4), pins=pins)
    found = select(pinned, replace(HARD, refuse_tagged=True))
    assert gone(found) == [3]
    assert found.versions[1].reason == "branch 'dev' starts from it"


def test_what_branches_name_stays() -> None:
    held = {data(1): "branch 'dev' names it"}
    found = select(survey(version(1, data(1), data(2)), version(2), held=held), HARD)
    assert gone_files(found) == {data(2)}


def test_a_name_under_a_base_path_is_never_a_reason_to_delete_and_always_one_to_keep() -> None:
    elsewhere = replace(version(1), named=Named(frozenset(), frozenset((data(1),))))
    files = (File(data(1), 10, NOW),)
    assert gone_files(select(survey(elsewhere, version(2), files=files), HARD)) == set()
    keeps = replace(version(2), named=Named(frozenset(), frozenset((data(1),))))
    assert gone_files(select(survey(version(1, data(1)), keeps, files=files), HARD)) == set()


ORPHANS = [
    data(7),
    "data/0b8f1a2c-1111-4222-8333-123456789abc.lance",
    "_deletions/3-5-77.arrow",
    "_transactions/4-0b8f1a2c-1111-4222-8333-123456789abc.txn",
    "_indices/0b8f1a2c-1111-4222-8333-123456789abc/page_data.lance",
    "data/.tmpabc",
    "_versions/.tmp_0001",
    f"_versions/{names.manifest_name(1)}-0b8f1a2c-1111-4222-8333-123456789abc",
    f"data/{names.data_file_name(bytes(16)).removesuffix('.lance')}/{'01' * 16}.blob",
]


@pytest.mark.parametrize("path", ORPHANS)
def test_files_that_no_version_names_go_when_no_write_can_be_waiting_to_commit_them(path: str) -> None:
    young, old = File(path, 5, NOW - GRACE_NS + 1), File(path, 5, NOW - GRACE_NS)
    assert gone_files(select(survey(version(1), files=(young,)), HARD)) == set()
    assert gone_files(select(survey(version(1), files=(old,)), HARD)) == {path}
    hard = replace(HARD, delete_unverified=True)
    found = select(survey(version(1), files=(young,)), hard)
    assert gone_files(found) == {path}
    assert found.files[0].unverified
    waiting = select(survey(version(1), files=(young,)), HARD).files[0]
    assert waiting.until_ns == NOW + 1


@pytest.mark.parametrize(
    "path",
    [
        "data/foreign.bin",
        "data/mine.lance",
        f"data/sub/{names.data_file_name(bytes(16))}",
        "_deletions/readme.txt",
        "_indices/note.txt",
        "_indices/mine/page.lance",
        "_versions/latest_version_hint.json",
        "_versions/copy of 1.manifest",
        "_refs/tags/gold.json",
        "readme.txt",
        "media/",
    ],
)
def test_what_no_writer_names_so_stays_for_ever(path: str) -> None:
    found = select(survey(version(1), files=(File(path, 5, 0),)), replace(HARD, delete_unverified=True))
    assert gone_files(found) == set()


def test_a_manifest_staged_for_a_version_to_come_stays() -> None:
    path = f"_versions/{names.manifest_name(9)}-0b8f1a2c-1111-4222-8333-123456789abc"
    found = select(survey(version(1), files=(File(path, 5, 0),)), replace(HARD, delete_unverified=True))
    assert not found.files[0].goes


def test_a_segment_waits_for_its_youngest_file() -> None:
    folder = "_indices/0b8f1a2c-1111-4222-8333-123456789abc"
    files = (File(f"{folder}/a.lance", 5, 0), File(f"{folder}/b.lance", 5, NOW))
    assert gone_files(select(survey(version(1), files=files), HARD)) == set()


def test_a_temporary_file_in_a_live_segment_goes_by_its_own_age() -> None:
    folder = "_indices/0b8f1a2c-1111-4222-8333-123456789abc"
    live = version(1, folder)
    files = (File(f"{folder}/a.lance", 5, 0), File(f"{folder}/.tmpx", 5, 0))
    assert gone_files(select(survey(live, files=files), HARD)) == {f"{folder}/.tmpx"}


def test_blob_files_go_with_their_data_file() -> None:
    owner = names.data_file_name(bytes(16))
    blob = f"data/{owner.removesuffix('.lance')}/{'10' * 16}.blob"
    assert key_of(blob) == f"data/{owner}"
    files = (File(blob, 5, NOW), File(f"data/{owner}", 5, NOW))
    assert gone_files(select(survey(version(1, f"data/{owner}"), files=files), HARD)) == set()
    assert gone_files(select(survey(version(1, f"data/{owner}"), version(2), files=files), HARD)) == {
        blob,
        f"data/{owner}",
    }


def test_a_data_file_of_any_name_goes_once_a_version_named_it() -> None:
    found = select(survey(version(1, "data/mine.lance"), version(2)), HARD)
    assert gone_files(found) == {"data/mine.lance"}
    assert kind_of("data/mine.lance") is None
    assert found.files[0].kind == "data"


@pytest.mark.parametrize(
    "wrong",
    [{"older_than_ns": -1}, {"retain_versions": 0}, {"versions": frozenset()}, {"versions": frozenset((0,))}],
)
def test_what_cannot_be_asked_for_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidCleanup):
        Policy(**wrong)  # type: ignore[arg-type]


def test_a_version_that_does_not_exist_yet_is_refused_and_one_that_is_gone_is_not() -> None:
    with pytest.raises(VersionNotFound, match="newest version is 3"):
        select(survey(version(2), version(3)), Policy(versions=frozenset((4,))))
    assert gone(select(survey(version(2), version(3)), Policy(versions=frozenset((1, 2))))) == [2]


def test_spans_are_told_in_words() -> None:
    assert [span_text(ns) for ns in (DAY_NS, 14 * DAY_NS, YOUNG_NS, 90 * 10**9)] == [
        "1 day",
        "14 days",
        "1 hour",
        "90 seconds",
    ]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.frozensets(st.integers(0, 12), max_size=5), min_size=1, max_size=8),
    st.frozensets(st.integers(1, 8), max_size=3),
    st.frozensets(st.integers(0, 12), max_size=3),
    st.one_of(st.none(), st.integers(0, 9)),
    st.one_of(st.none(), st.integers(1, 4)),
    st.booleans(),
)
def test_nothing_reachable_goes_and_nothing_else_that_was_reachable_stays(
    named: list[frozenset[int]],
    tagged: frozenset[int],
    on_branches: frozenset[int],
    days: int | None,
    retain: int | None,
    unverified: bool,
) -> None:
    count = len(named)
    versions = [version(n + 1, *map(data, files), age=(count - n) * DAY_NS) for n, files in enumerate(named)]
    files = tuple(File(data(n), 10, NOW - n * DAY_NS) for n in range(13))
    found = select(
        survey(
            *versions,
            files=files,
            pins={n: (Pin("a tag", "t"),) for n in tagged},
            held={data(n): "a branch" for n in on_branches},
        ),
        Policy(None if days is None else days * DAY_NS, retain, None, unverified, refuse_tagged=False),
    )
    stay = {count} | (tagged & set(range(1, count + 1)))
    if retain is not None:
        stay |= set(range(count - retain + 1, count + 1))
    if days is not None:
        stay |= {n + 1 for n in range(count) if count - n < days}
    assert gone(found) == [n for n in range(1, count + 1) if n not in stay]
    reachable = on_branches.union(*(named[n - 1] for n in stay if n >= 1))
    was_named = frozenset().union(*named)
    expected = {
        n
        for n in range(13)
        if n not in reachable and (n in was_named or unverified or n * DAY_NS >= GRACE_NS)
    }
    assert gone_files(found) == {data(n) for n in expected}
