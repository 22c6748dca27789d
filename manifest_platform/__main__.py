"""Runs the command line without the console script: `python -m manifest_platform`."""

import sys

from manifest_platform.cli import main

sys.exit(main())
