"""The commands `merge ...`: merge small objects, publish merged ones, and show and repair partitions.

Belongs here: arguments and output, a module for each subject. The work itself is in `pipeline.merge` and `operations`.
"""

from manifest_platform.cli.merge import (  # noqa: F401 - modules of commands register them
    external,
    publish,
    read,
    rebuild,
    remove,
    run,
    show,
    status,
)
