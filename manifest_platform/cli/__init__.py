"""The operator's commands: what is going on, what comes next, and the decisions that only a person can take.

Exit codes are the same for every command, and stand in `exits`.

With --json, stdout is one JSON document (`drain`: one line an event, then the summary) and nothing else; an error is a
document `{"error": …}`. Warnings and errors go to stderr in any case. Times are UTC, sizes in bytes or decimal units.

Nothing is decided here: the modules of commands ask the pipeline, `standing` puts what it finds into the operators' words,
`output` prints it. `commands` says in which module a command is, which alone is imported. Spark and the warehouse are imported
only by the commands that work with them, so that the others answer at once.
"""

from manifest_platform.cli.app import main
from manifest_platform.cli.exits import Exit

__all__ = ["Exit", "main"]
