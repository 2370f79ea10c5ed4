"""Wall clocks of running processes that can be stepped, by a small library that is preloaded into them."""

import mmap
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")


def build(directory: Path) -> tuple[Path | None, str]:
    """Compile the shim into *directory*; return its path, or None and the reason."""
    if sys.platform != "linux":
        return None, "preloading is done on Linux only"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None, "no C compiler (cc) on PATH"
    library = directory / "shim.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        return None, f"the C compiler refuses the shim: {done.stderr.strip()[-300:]}"
    return library, ""


class StepClock:
    """Offset of the wall clock of one process and its children; takes effect at once."""

    def __init__(self, path: Path, library: Path | None) -> None:
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 8)
        self._words = memoryview(self._page).cast("q")
        self.environment = {"CHAOS_CLOCK": str(path), "LD_PRELOAD": str(library)} if library else {}

    @property
    def offset_s(self) -> float:
        return self._words[0] / 1e9

    def set(self, offset_s: float) -> None:
        # an aligned store of 8 bytes: no reader sees half of it
        self._words[0] = round(offset_s * 1e9)
