"""`python -m manifest_platform.demo [--store sqlite|dynamodb]`: runs the demo; `--clean` removes what it left."""

import sys

from manifest_platform.demo.run import main

sys.exit(main())
