from tiltyard.format.protos import file_pb2 as _file_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Uuid(_message.Message):
    __slots__ = ("uuid",)
    UUID_FIELD_NUMBER: _ClassVar[int]
    uuid: bytes
    def __init__(self, uuid: _Optional[bytes] = ...) -> None: ...

class IndexFile(_message.Message):
    __slots__ = ("path", "size_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class IndexMetadata(_message.Message):
    __slots__ = ("uuid", "fields", "name", "dataset_version", "fragment_bitmap", "index_details", "index_version", "created_at", "base_id", "files", "covering_fields")
    UUID_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_BITMAP_FIELD_NUMBER: _ClassVar[int]
    INDEX_DETAILS_FIELD_NUMBER: _ClassVar[int]
    INDEX_VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    BASE_ID_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    COVERING_FIELDS_FIELD_NUMBER: _ClassVar[int]
    uuid: Uuid
    fields: _containers.RepeatedScalarFieldContainer[int]
    name: str
    dataset_version: int
    fragment_bitmap: bytes
    index_details: _file_pb2.TypedBytes
    index_version: int
    created_at: int
    base_id: int
    files: _containers.RepeatedCompositeFieldContainer[IndexFile]
    covering_fields: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, uuid: _Optional[_Union[Uuid, _Mapping]] = ..., fields: _Optional[_Iterable[int]] = ..., name: _Optional[str] = ..., dataset_version: _Optional[int] = ..., fragment_bitmap: _Optional[bytes] = ..., index_details: _Optional[_Union[_file_pb2.TypedBytes, _Mapping]] = ..., index_version: _Optional[int] = ..., created_at: _Optional[int] = ..., base_id: _Optional[int] = ..., files: _Optional[_Iterable[_Union[IndexFile, _Mapping]]] = ..., covering_fields: _Optional[_Iterable[int]] = ...) -> None: ...

class IndexSection(_message.Message):
    __slots__ = ("indices",)
    INDICES_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedCompositeFieldContainer[IndexMetadata]
    def __init__(self, indices: _Optional[_Iterable[_Union[IndexMetadata, _Mapping]]] = ...) -> None: ...

class FragmentDigest(_message.Message):
    __slots__ = ("id", "physical_rows", "num_deleted_rows")
    ID_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_ROWS_FIELD_NUMBER: _ClassVar[int]
    NUM_DELETED_ROWS_FIELD_NUMBER: _ClassVar[int]
    id: int
    physical_rows: int
    num_deleted_rows: int
    def __init__(self, id: _Optional[int] = ..., physical_rows: _Optional[int] = ..., num_deleted_rows: _Optional[int] = ...) -> None: ...

class ReuseGroup(_message.Message):
    __slots__ = ("changed_row_addrs", "old_fragments", "new_fragments")
    CHANGED_ROW_ADDRS_FIELD_NUMBER: _ClassVar[int]
    OLD_FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    NEW_FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    changed_row_addrs: bytes
    old_fragments: _containers.RepeatedCompositeFieldContainer[FragmentDigest]
    new_fragments: _containers.RepeatedCompositeFieldContainer[FragmentDigest]
    def __init__(self, changed_row_addrs: _Optional[bytes] = ..., old_fragments: _Optional[_Iterable[_Union[FragmentDigest, _Mapping]]] = ..., new_fragments: _Optional[_Iterable[_Union[FragmentDigest, _Mapping]]] = ...) -> None: ...

class ReuseVersion(_message.Message):
    __slots__ = ("dataset_version", "groups")
    DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    dataset_version: int
    groups: _containers.RepeatedCompositeFieldContainer[ReuseGroup]
    def __init__(self, dataset_version: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[ReuseGroup, _Mapping]]] = ...) -> None: ...

class ReuseVersions(_message.Message):
    __slots__ = ("versions",)
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[ReuseVersion]
    def __init__(self, versions: _Optional[_Iterable[_Union[ReuseVersion, _Mapping]]] = ...) -> None: ...

class ReuseFile(_message.Message):
    __slots__ = ("path", "offset", "size")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    path: str
    offset: int
    size: int
    def __init__(self, path: _Optional[str] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class FragmentReuseDetails(_message.Message):
    __slots__ = ("inline", "external")
    INLINE_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    inline: ReuseVersions
    external: ReuseFile
    def __init__(self, inline: _Optional[_Union[ReuseVersions, _Mapping]] = ..., external: _Optional[_Union[ReuseFile, _Mapping]] = ...) -> None: ...
