"""`python -m snowredis.cli`."""

from __future__ import annotations

import sys

from snowredis.cli import main

sys.exit(main())
