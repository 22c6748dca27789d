"""The application that all commands belong to: common options, groups, error handling and exit codes.

Belongs here: code that every command needs. Does not belong here: a command, or anything that is slow to import. A module
registers its commands with `app` and is named in `commands`.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command_name
from typer.models import ArgumentInfo, CommandInfo
from typer.utils import get_params_from_function

from manifest_platform import outward, plugins
from manifest_platform.cli import exits
from manifest_platform.cli.commands import COMMANDS
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, warn
from manifest_platform.cli.signals import Interrupted, told_to_end
from manifest_platform.cli.waiting import told_how_far


class WrongUse(Exception):
    """An argument or option has an invalid value. The message says which values are valid. Exit code 2."""


class CommandBroken(Exception):
    """A plug-in's command cannot be loaded. The message names the command and the cause."""


# The common options: every command accepts them before or after its name.


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta[f"{__name__}.{parameter.name}"] = value


def given(context: click.Context, option: str) -> Any:
    """Returns the value of a common option, None if the command line does not set it."""
    return context.meta.get(f"{__name__}.{option}")


def as_json(context: typer.Context) -> bool:
    """Returns True if the answer must be JSON."""
    return bool(given(context, "json"))


def _completed(function: str) -> Callable[[typer.Context, list[str], str], list[str]]:
    """Returns a completion callback. It imports `completion` on its first call only, because that module imports slowly.

    `function`: the function in `completion` that finds the values, `datasets` or `items`.
    """

    def offered(ctx: typer.Context, args: list[str], incomplete: str) -> list[str]:
        del args
        return getattr(import_module("manifest_platform.cli.completion"), function)(ctx, incomplete)

    return offered


completed_items = _completed("items")


def common_options() -> list[TyperOption]:
    """Returns the options `--config`, `--dataset` and `--json`, for a command or a group."""
    return [
        TyperOption(
            param_decls=["--config"],
            metavar="FILE",
            help="Configuration file. Default: $MANIFEST_PLATFORM_CONFIG, else manifest_platform.yaml in this folder.",
            expose_value=False,
            callback=_keep,
        ),
        TyperOption(
            param_decls=["--dataset"],
            metavar="NAME",
            help="Dataset to work on. Optional if only one is configured.",
            autocompletion=_completed("datasets"),
            expose_value=False,
            callback=_keep,
        ),
        TyperOption(
            param_decls=["--json"],
            is_flag=True,
            default=False,
            help="Print the answer as JSON on stdout.",
            expose_value=False,
            callback=_keep,
        ),
    ]


_WHOLE = 500
"""The number of characters to which a help's first sentence is cut: longer than any."""


class Command(TyperCommand):
    """A command with the common options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._keep_texts()
        self.params += common_options()

    def _keep_texts(self) -> None:
        """Restores the help texts of arguments: newer releases of Click overwrite those that Typer does not pass on."""
        lost = {param.name: param for param in self.params if isinstance(param, TyperArgument) and not param.help}
        if lost and self.callback:
            for name, told in get_params_from_function(self.callback).items():
                if name in lost and isinstance(told.default, ArgumentInfo):
                    lost[name].help = told.default.help

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Prints nothing: Typer lists arguments together with the options, and newer Click releases would list them twice."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """Returns the whole first sentence of the help; the list of commands wraps it."""
        return super().get_short_help_str(max(limit, _WHOLE))

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. If an error has a remedy, adds the command to type as a note on the error."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:  # Typer would turn it into an exit code without a message
            raise Interrupted.of(error, "interrupted; finished work is kept, and the command can be run again") from error
        except Exception as error:
            if remedy := getattr(error, "remedy", None):
                from manifest_platform.cli.remedies import typed, with_remedy

                error.add_note(with_remedy(str(error), remedy, typed(ctx)))
            raise


PROGRAM = "manifest-platform"

RUN_VARIABLE = "MANIFEST_PLATFORM_RUN_ID"
"""The environment variable with the run id of every command that has no --run-id."""


def _keep_run(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    from manifest_platform.manifest.records import InvalidRunId, run_id_of

    if value is not None:
        try:
            _keep(context, parameter, run_id_of(value))
        except InvalidRunId as error:
            raise click.BadParameter(str(error), context, parameter) from error


class Recording(Command):
    """A command that writes records. It also accepts `--run-id`, the id that its records carry."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(
            TyperOption(
                param_decls=["--run-id"],
                metavar="ID",
                help=f"Run id for the records that this command writes. Default: ${RUN_VARIABLE}, else a new UUID.",
                expose_value=False,
                callback=_keep_run,
            )
        )


ItemName = Annotated[
    str,
    typer.Argument(
        metavar="ITEM", help="Item name, such as run=YYYY-MM-DD-HH-MM-SS, or its URI.", autocompletion=completed_items
    ),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Reason to write into the records.")]

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
"""The commands whose modules were imported so far."""


class Group(TyperGroup):
    """A group of commands with the common options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += common_options()
        self.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")  # a newer Click suggests by itself


def group(name: str, help: str, cls: type[Group] = Group) -> typer.Typer:  # noqa: A002 - Typer's name for it
    """Creates a group of commands and registers it under its name."""
    made = typer.Typer(cls=cls, help=help, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(made, name=name)
    return made


def examples(*lines: str) -> str:
    """Returns the last section of a command's help: example command lines, given without the program's name."""
    return "\b\nExamples:\n" + "\n".join(f"  {PROGRAM} {line}" for line in lines)


class _Listed(click.Command):
    """A command in the list of the help. Its module is not imported."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return self.help or ""


class _Commands(Group):
    """All commands by name.

    A command's module is imported when the command is called. A plug-in's command is also imported for the list in the help.
    """

    def __init__(self) -> None:
        super().__init__(
            name=PROGRAM,
            commands={name: _Listed(name, help=known.help) for name, known in COMMANDS.items()},
            help="Load directories from object storage into warehouse tables: in order, exactly once.",
            epilog=f"\b\nExit codes:\n{exits.table()}\n\n\b\n"
            "Name an item by its run (run=2024-05-14-12-40-00), its window\n"
            "(incr/stoptime=202405141245) or its URI. Times are in UTC.",
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        self.params += [
            TyperOption(
                param_decls=["--version"],
                is_flag=True,
                default=False,
                help="Show the releases of the platform, of Python, and of the installed extras.",
                expose_value=False,
                callback=_keep,
            ),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        if given(ctx, "version"):
            from manifest_platform.cli.version import print_version

            return print_version(bool(given(ctx, "json")))
        return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._add_plugins()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            self._add_plugins()
        return super().get_command(ctx, cmd_name)

    def _add_plugins(self) -> None:
        """Adds the commands of plug-ins. Called only if needed: it reads the metadata of every installed package."""
        for name in plugins.names(plugins.COMMANDS):
            self.commands.setdefault(name, _PluginCommand(name))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else None, rest


class _PluginCommand(click.Command):
    """A plug-in's command in the list of the help: its first sentence, or the reason why it cannot be loaded."""

    def get_short_help_str(self, limit: int = 45) -> str:
        try:
            return load(self.name or "").get_short_help_str(limit)
        except CommandBroken as error:
            return str(error)


def load(name: str) -> click.Command:
    """Imports a command or a group of commands: the platform's own, else a plug-in's. Raises CommandBroken."""
    if name in COMMANDS:
        import_module(f"manifest_platform.cli.{COMMANDS[name].module}")
        return typer.main.get_group(_with_one(name)).commands[name]
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    try:
        alone.command(name, cls=Command)(plugins.load(plugins.COMMANDS, name))
        return typer.main.get_command(alone)
    except Exception as error:
        raise CommandBroken(f"cannot load the plug-in's command {name!r}: {type(error).__name__}: {error}") from error


def _with_one(name: str) -> typer.Typer:
    """Returns an application of one command or group: in a process that has imported all, Typer takes 40 ms to build all."""
    alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.registered_commands = [known for known in app.registered_commands if _name(known) == name]
    alone.registered_groups = [known for known in app.registered_groups if known.name == name]
    return alone


def _name(command: CommandInfo) -> str:
    """Returns what is typed for a command: the name it was given, else that of its function."""
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code. Expected errors are printed as one message on stderr."""
    _collect_less_garbage(ends_with_it=arguments is None)
    outward.guard()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    # Click's name of the variable by which a shell asks for completion: the same as `shells.VARIABLE`.
    if asked := os.environ.get(f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"):
        from manifest_platform.cli import shells

        shells.complete(_Commands(), PROGRAM, asked)
        return Exit.DONE
    try:
        with told_how_far(as_json), told_to_end():
            return _Commands().main(args=arguments, prog_name=PROGRAM, standalone_mode=False) or Exit.DONE
    except click.exceptions.NoArgsIsHelpError as error:
        warn(error.format_message())
        return Exit.WRONG_USE
    except click.ClickException as error:
        if not as_json and isinstance(error, click.UsageError) and error.ctx:
            warn(error.ctx.get_usage())
        return fail(error.format_message(), error, Exit.WRONG_USE, as_json)
    except WrongUse as error:
        return fail(str(error), error, Exit.WRONG_USE, as_json)
    except CommandBroken as error:
        return fail(str(error), error, Exit.FAILED, as_json)
    except (Interrupted, KeyboardInterrupt, click.Abort) as error:
        told = Interrupted.of(error, str(error) or "interrupted")
        return fail(str(told), told, told.code, as_json)
    except ImportError as error:
        from manifest_platform import extras

        if missing := extras.missing(error):
            return fail(str(missing), missing, Exit.FAILED, as_json)
        raise
    except Exception as error:
        from manifest_platform.cli.expected import EXPECTED, ConfigError

        if isinstance(error, (ConfigError, *EXPECTED)):
            message = "\n".join(getattr(error, "__notes__", ())) or str(error)
            return fail(message, error, Exit.WRONG_USE if isinstance(error, ConfigError) else Exit.FAILED, as_json)
        if as_json:
            print_json(error_document(error, f"unexpected error, a defect: {error}; the traceback is on stderr"))
        raise
    finally:
        if place := sys.modules.get("manifest_platform.spark.place"):
            place.end()


def _collect_less_garbage(ends_with_it: bool) -> None:
    """Makes Python's garbage collector run less often: it took a quarter of the time of `status`.

    Imports leave no garbage. `ends_with_it`: also skips the collection at the exit of the process. A process that used
    a warehouse does not skip it, because DuckDB reports every frozen object as a leak.
    """
    gc.set_threshold(100_000)
    if ends_with_it:
        atexit.register(lambda: None if "manifest_platform.warehouse.apply" in sys.modules else gc.freeze())


def fail(message: str, error: BaseException, code: Exit, as_json: bool, **told: Any) -> int:
    """Prints an error on stderr, with --json also as a document on stdout, and returns the exit code.

    `told`: further fields of the JSON document. A message can quote several lines of another system: all but the first are
    indented, so that none of them looks like a line of this program.
    """
    first, *others = f"error: {message}".split("\n")
    warn("\n".join([first, *(line if line.startswith(" ") else f"  {line}" for line in others)]))
    if as_json:
        print_json({**error_document(error, message), **told})
    return code


def error_document(error: BaseException, message: str) -> dict[str, Any]:
    """Returns the JSON document of an error."""
    return {"error": {"type": type(error).__name__, "message": message}}
