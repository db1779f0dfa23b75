"""Whether a store keeps what tables rely on: `tiltyard probe URI`, and the same for stores of your own.

`probe` asks a location, `probe_store` whatever implements `tiltyard.store.Store`; both take seconds, work in
a directory of their own and remove it. `deep.probe_deep` lets real processes work on a scratch table there,
kills some of them, and looks whether anything was lost.
"""

from __future__ import annotations

from tiltyard.testing.probe.findings import Call, Finding, Grade, Report
from tiltyard.testing.probe.run import probe, probe_store

__all__ = ["Call", "Finding", "Grade", "Report", "probe", "probe_store"]
