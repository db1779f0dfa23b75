"""The choice of encodings, from statistics alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.encoding import choose
from tiltyard.encoding.choose import FixedStats, Form
from tiltyard.encoding.write.dictionary import measure
from tiltyard.encoding.write.values import Fixed
from tiltyard.format.version import FileVersion


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (np.arange(5000) % 1000, Form.INLINE),
        (np.repeat(np.arange(50) * 2**40, 100), Form.RUNS),
        (np.random.default_rng(1).integers(-(2**62), 2**62, 5000), Form.FLAT),
        (np.zeros(5000, np.int64), Form.INLINE),
    ],
    ids=["narrow", "runs", "random", "zero"],
)
def test_the_smallest_form_is_chosen(values: np.ndarray, form: Form) -> None:
    raw = values.astype(np.int64).view(np.uint8)
    assert measure(Fixed(64, raw, values.size)).form is form


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 10**6), st.sampled_from([8, 16, 32, 64]), st.data())
def test_no_other_form_is_smaller(count: int, bits: int, data: st.DataObject) -> None:
    entries = data.draw(st.integers(1, count))
    inline = data.draw(st.integers(0, 2 * count * bits // 8))
    stats = FixedStats(count, bits, entries, inline)
    form, size = choose.fixed_form(stats)
    sizes = {Form.FLAT: stats.flat, Form.RUNS: stats.runs, Form.INLINE: inline}
    assert size == sizes[form] == min(sizes.values())


def test_runs_can_be_limited_by_their_number() -> None:
    stats = FixedStats(1000, 64, 300, 8100)
    assert choose.fixed_form(stats)[0] is Form.RUNS
    assert choose.fixed_form(stats, rle_threshold=0.2)[0] is Form.FLAT


def test_few_values_get_no_dictionary() -> None:
    assert choose.dictionary_limit(99, 2) == 0
    assert choose.dictionary_limit(100, 2) == 50
    assert choose.dictionary_limit(10**7, 2) == choose.DICTIONARY_MAX_ENTRIES


def test_a_sample_of_nearly_distinct_values_rules_a_dictionary_out() -> None:
    assert not choose.dictionary_sample_fits(4080, 4096, 10**6, 10**5)
    assert choose.dictionary_sample_fits(50, 4096, 10**6, 10**5)
    assert not choose.dictionary_sample_fits(2000, 4096, 10**6, 10**5)  # 488,281 expected


def test_a_few_long_values_among_many_short_ones_stay_in_small_chunks() -> None:
    assert choose.text_is_narrow(1000, 200_000, 255)
    assert not choose.text_is_narrow(1000, 200_000, 256)
    assert choose.text_is_narrow(1000, 20_000, 3000)


def test_the_narrowest_index_holds_every_entry() -> None:
    assert [choose.index_bits(each) for each in (1, 256, 257, 65536, 65537)] == [8, 8, 16, 16, 32]


def test_dictionaries_of_narrow_values_need_the_later_version() -> None:
    assert choose.may_have_fixed_dictionary(128, FileVersion.V2_1)
    assert not choose.may_have_fixed_dictionary(64, FileVersion.V2_1)
    assert choose.may_have_fixed_dictionary(32, FileVersion.V2_2)
