"""Transactions as callers make, commit and read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tiltyard import runtime
from tiltyard.dataset.operations import LanceOperation, operation_from_fact, operation_to_fact
from tiltyard.format import transaction as facts

COMMIT_MESSAGE_KEY = "__lance_commit_message"
"""The property that holds a commit's message."""


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
        return facts.Transaction(
            read_version=self.read_version,
            uuid=self.uuid,
            operation=operation_to_fact(self.operation),
            properties=dict(self.transaction_properties or {}),
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
    merged = dict(properties or {})
    if message is not None:
        merged[COMMIT_MESSAGE_KEY] = message
    return merged
