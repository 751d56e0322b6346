"""``python -m rbnn`` is ``rbnn``."""

import os
import sys
from contextlib import suppress

# Python puts the working directory first, where a file may have the name of a module or of a file of --import.
with suppress(OSError):  # the directory may be gone
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]

from rbnn.cli import main

sys.exit(main(sys.argv[1:]))
