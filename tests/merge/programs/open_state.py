"""Open the state of a check, as a second command would, and print the error."""

import sys
from pathlib import Path

from snowredis.merge import SourceError
from snowredis.merge.workspace import Workspace

try:
    Workspace(Path(sys.argv[1]), 1 << 30).close()
except SourceError as error:
    print(error)
