"""Page layouts to and from bytes. Hex strings stand in section 10 of the file format pack."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import CorruptFile, TiltyardError, UnsupportedFeature
from tiltyard.format.layouts import (
    BlobPage,
    ByteStreamSplit,
    ConstantPage,
    ConstantValue,
    Encoding,
    FixedSizeList,
    Flat,
    Fsst,
    FullZip,
    General,
    InlineBitpacking,
    MiniBlock,
    OutOfLineBitpacking,
    PackedField,
    PackedStruct,
    PageLayout,
    Rle,
    Variable,
    VariablePackedStruct,
    decode_layout,
    encode_layout,
)

URL = b"/lance.encodings21.PageLayout"


def typed(value: bytes, url: bytes = URL) -> bytes:
    return b"\x0a" + bytes([len(url)]) + url + b"\x12" + bytes([len(value)]) + value


def mini(**changes: object) -> MiniBlock:
    given = {
        "rep": None,
        "def_": None,
        "values": Flat(32),
        "dictionary": None,
        "num_dictionary_items": 0,
        "layers": (1,),
        "num_buffers": 1,
        "repetition_index_depth": 0,
        "num_items": 3,
        "large_chunks": False,
    }
    return MiniBlock(**(given | changes))  # type: ignore[arg-type]


WORKED = {
    "0a0d1a040a0208203201013801 4803": mini(),
    "0a0f1a040a02082032010138014803 5001": mini(large_chunks=True),
    "0a1312040a0208101a040a0208403201033801 4804": mini(
        def_=Flat(16), values=Flat(64), layers=(3,), num_items=4
    ),
    "0a1712040a0208101a0812060a040a02082032010338014804": mini(
        def_=Flat(16), values=Variable(32), layers=(3,), num_items=4
    ),
    "0a1c0a040a02081012040a0208101a040a0208203202010638014001 4803": mini(
        rep=Flat(16), def_=Flat(16), layers=(1, 6), repetition_index_depth=1
    ),
    "0a1b12040a0208101a0c5a0a080212040a02082018013201033802 4803": mini(
        def_=Flat(16), values=FixedSizeList(2, Flat(32), True), layers=(3,), num_buffers=2
    ),
    "12032a0103": ConstantPage((3,)),
    "12092a01013204 05000000": ConstantPage((1,), b"\x05\0\0\0"),
    "0a1c1a042a0208202208120 60a040a02082028023201013801 48c8015001": mini(
        values=InlineBitpacking(32),
        dictionary=Variable(32),
        num_dictionary_items=2,
        num_items=200,
        large_chunks=True,
    ),
}


@pytest.mark.parametrize("text", WORKED)
def test_worked_bytes(text: str) -> None:
    data = typed(bytes.fromhex(text.replace(" ", "")))
    assert decode_layout(data) == WORKED[text]
    assert encode_layout(WORKED[text]) == data


def test_equal_bytes_give_the_same_object() -> None:
    data = encode_layout(mini())
    assert decode_layout(data) is decode_layout(bytes(bytearray(data)))


widths = st.sampled_from([8, 16, 32, 64])
layers = st.lists(st.integers(1, 6), min_size=1, max_size=5).map(tuple)
counts = st.integers(0, 2**32 - 1)


def encodings() -> st.SearchStrategy[Encoding]:
    plain = (
        st.builds(Flat, st.integers(0, 4096))
        | st.builds(Variable, st.sampled_from([32, 64]))
        | st.builds(ConstantValue, st.none() | st.binary(max_size=4))
        | st.builds(OutOfLineBitpacking, widths, st.integers(0, 64))
        | st.builds(InlineBitpacking, widths)
        | st.builds(Rle, widths, st.just(8))
        | st.builds(ByteStreamSplit, st.sampled_from([32, 64]))
    )
    return st.recursive(
        plain,
        lambda inner: (
            st.builds(Fsst, st.binary(max_size=20), inner)
            | st.builds(General, st.sampled_from(["lz4", "zstd"]), st.none() | st.integers(-5, 22), inner)
            | st.builds(FixedSizeList, st.integers(1, 2000), inner, st.booleans())
            | st.builds(PackedStruct, st.lists(widths, max_size=3).map(tuple), inner)
            | st.builds(
                VariablePackedStruct,
                st.lists(st.builds(PackedField, inner, widths, st.booleans()), max_size=3).map(tuple),
            )
        ),
        max_leaves=4,
    )


def pages() -> st.SearchStrategy[PageLayout]:
    maybe = st.none() | encodings()
    plain: st.SearchStrategy[PageLayout] = (
        st.builds(
            MiniBlock,
            maybe,
            maybe,
            encodings(),
            maybe,
            counts,
            layers,
            counts,
            st.integers(0, 9),
            counts,
            st.booleans(),
        )
        | st.builds(
            FullZip,
            st.integers(0, 16),
            st.integers(0, 16),
            counts,
            st.booleans(),
            counts,
            counts,
            encodings(),
            layers,
        )
        | st.builds(ConstantPage, layers, st.none() | st.binary(max_size=32), maybe, maybe, counts, counts)
    )
    return plain | st.builds(BlobPage, plain, layers)


@settings(max_examples=50, deadline=None)
@given(pages())
def test_any_layout_round_trips(layout: PageLayout) -> None:
    assert decode_layout(encode_layout(layout)) == layout


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("2a00", "page layout 'sparse_layout'"),
        ("3200", "page layout number 6"),
        ("0a041a02 7200", "encoding 'range'"),
        ("0a041a02 7a00", "encoding 'delta'"),
        ("0a041a02 3a00", "encoding 'dictionary'"),
        ("0a051a03 820100", "encoding number 16"),
        ("0a061a04 0a021200", "buffer compression inside flat"),
        ("0a0a1a08 12060a04 2a020820", "offsets of variable-width values encoded as InlineBitpacking"),
        ("0a0c1a0a 52080a02 08091a02 0a00", "compression scheme 9"),
        ("12032a01 09", "page layer kind 9"),
    ],
)
def test_unknown_members_are_refused_by_name(value: str, match: str) -> None:
    data = bytes.fromhex(value.replace(" ", ""))
    with pytest.raises(UnsupportedFeature, match=match):
        decode_layout(typed(data))


def test_other_page_messages_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match=r"lance\.encodings23\.PlanarLayout"):
        decode_layout(typed(b"", b"/lance.encodings23.PlanarLayout"))
    with pytest.raises(CorruptFile, match="slash"):
        decode_layout(typed(b"", b"lance.encodings21.PageLayout"))
    assert decode_layout(typed(bytes.fromhex("12032a0103"), b"type.googleapis.com" + URL)) == ConstantPage(
        (3,)
    )


def test_missing_members_are_corrupt() -> None:
    with pytest.raises(CorruptFile, match="encoding is missing"):
        decode_layout(typed(bytes.fromhex("0a00")))
    with pytest.raises(CorruptFile, match="page layout is missing"):
        decode_layout(typed(b""))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60))
def test_noise_gives_a_value_or_a_typed_error(noise: bytes) -> None:
    for data in (noise, typed(noise)):
        try:
            decode_layout(data)
        except TiltyardError:
            continue
