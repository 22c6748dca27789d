"""The commands `merge ...`: small objects to merged ones, and what an operator wants to know and decide about them.

Belongs here: arguments, and how answers look, a module for each subject. What the commands do is in `pipeline.merge` and
`operations`.
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
