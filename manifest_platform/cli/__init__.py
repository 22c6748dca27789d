"""The operator's commands: they show the state of a dataset, start work, and record the decisions of a person.

Belongs here: arguments, options, tables, messages and exit codes. Does not belong here: any rule or decision. Commands call
`operations` and `pipeline`, and print the result with `output`.

`commands` names the module of each command. Only the module of the command that runs is imported, and only commands that
need Spark or the warehouse import them, so that all others start fast.

With --json, stdout holds one JSON document and nothing else; commands that report events (`drain`) print one line for each
event, then the summary. An error is the document `{"error": …}`. Warnings and errors always go to stderr. Times are UTC;
sizes are bytes or decimal units. `exits` lists the exit codes, which are the same for every command.
"""

from manifest_platform.cli.app import main
from manifest_platform.cli.exits import Exit

__all__ = ["Exit", "main"]
