"""``python -m rbnn`` is ``rbnn``."""

import sys

from rbnn.cli import main

sys.exit(main())
