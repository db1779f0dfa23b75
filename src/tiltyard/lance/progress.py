"""Being told about files as they are written."""

from __future__ import annotations

from tiltyard.dataset import FragmentWriteProgress, NoopFragmentWriteProgress

__all__ = ["FragmentWriteProgress", "NoopFragmentWriteProgress"]
