"""What a process keeps between operations: bounded caches, the buffer arena, named limits (D37, D45, D46).

A `Session` holds no protocol state: dropping one loses time, never data.
"""

from tiltyard.session.arena import Arena
from tiltyard.session.cache import ByteCache
from tiltyard.session.limits import Limits
from tiltyard.session.session import Session, default_session

__all__ = ["Arena", "ByteCache", "Limits", "Session", "default_session"]
