"""Transactions as callers make, commit and read them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.operations import LanceOperation, operation_from_fact, operation_to_fact
from tiltyard.errors import InvalidInput
from tiltyard.format import transaction as facts

COMMIT_MESSAGE_KEY = "__lance_commit_message"
"""The property that holds a commit's message."""


MAX_VERSION = (1 << 63) - 1
"""Greater numbers are those of detached versions."""
_UUID = re.compile(r"[0-9A-Za-z_-]{1,100}")
"""The uuid is part of a file's name."""


def _new_uuid() -> str:
    return str(runtime.uuid4())


@dataclass
class Transaction:
    """An operation, the version it was planned on, and what identifies and describes it."""

    read_version: int
    operation: LanceOperation.BaseOperation
    uuid: str = field(default_factory=_new_uuid)
    transaction_properties: dict[str, str] | None = field(default_factory=dict)

    def to_fact(self) -> facts.Transaction:
        """As a commit takes it."""
        if not _UUID.fullmatch(arguments.text("uuid", self.uuid)):
            raise InvalidInput(f"uuid must be letters, digits and dashes, found {arguments.shown(self.uuid)}")
        return facts.Transaction(
            read_version=arguments.whole("read_version", self.read_version),
            uuid=self.uuid,
            operation=operation_to_fact(self.operation),
            properties=with_message(self.transaction_properties, None),
        )

    @classmethod
    def from_fact(cls, fact: facts.Transaction) -> Transaction:
        """As a caller sees it."""
        return cls(
            read_version=fact.read_version,
            operation=operation_from_fact(fact.operation),
            uuid=fact.uuid,
            transaction_properties=dict(fact.properties),
        )


def with_message(properties: Any, message: str | None) -> dict[str, str]:
    """Transaction properties with the commit's message among them."""
    given = None if properties is None else arguments.text_map("transaction_properties", properties)
    merged = given or {}
    if message is not None:
        merged[COMMIT_MESSAGE_KEY] = arguments.text("commit_message", message)
    return merged
