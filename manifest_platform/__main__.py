"""`python -m manifest_platform`: the command line without the console script."""

import sys

from manifest_platform.cli import main

sys.exit(main())
