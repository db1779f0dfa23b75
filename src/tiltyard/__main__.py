"""`python -m tiltyard`: the same as the console script `tiltyard`."""

from __future__ import annotations

import sys

from tiltyard.cli import main

sys.exit(main())
