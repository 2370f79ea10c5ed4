"""Server programs other than the one on PATH; scripts/servers.py installs them in .cache/servers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

DIRECTORY = Path(__file__).parents[2] / ".cache" / "servers"


def other_servers() -> list[Path]:
    """Return the installed programs, each named after its version, such as ``valkey-9``."""
    return sorted(path for path in DIRECTORY.glob("*-[0-9]*") if os.access(path, os.X_OK))


def server_version(program: Path | str) -> str:
    """Return the version that *program* reports, such as ``9.1.2``; empty if it does not run."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"\bv=([\d.]+)", said.stdout)
    return found[1] if found else ""
