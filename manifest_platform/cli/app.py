"""The application that the commands belong to: exit codes, the options that all take, and how a command ends.

Belongs here: what every command needs and no command is, and nothing that is slow to import. A module of commands registers
them with `app`, and is named in `commands`.
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
from typer.models import ArgumentInfo
from typer.utils import get_params_from_function

from manifest_platform import outward, plugins
from manifest_platform.cli import exits
from manifest_platform.cli.commands import COMMANDS
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, warn
from manifest_platform.cli.signals import Interrupted, told_to_end
from manifest_platform.cli.waiting import told_how_far


class WrongUse(Exception):
    """The command was given something that it cannot mean; the message says what it takes."""


class CommandBroken(Exception):
    """A plug-in's command cannot be loaded; the message names it and says why."""


# The options that every command takes, before its name or behind it.


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta[f"{__name__}.{parameter.name}"] = value


def given(context: click.Context, option: str) -> Any:
    """What the command line gives an option that every command takes; None if nothing."""
    return context.meta.get(f"{__name__}.{option}")


def as_json(context: typer.Context) -> bool:
    """Whether the answer is to be JSON."""
    return bool(given(context, "json"))


def _completed(what: str) -> Callable[[typer.Context, list[str], str], list[str]]:
    """What a shell is offered for a value: `datasets` or `items`, as `completion` finds them, which alone is slow to import."""

    def offered(ctx: typer.Context, args: list[str], incomplete: str) -> list[str]:
        del args
        return getattr(import_module("manifest_platform.cli.completion"), what)(ctx, incomplete)

    return offered


completed_items = _completed("items")


def common_options() -> list[TyperOption]:
    """Those options, for a command or a group."""
    return [
        TyperOption(
            param_decls=["--config"],
            metavar="FILE",
            help="The configuration; else $MANIFEST_PLATFORM_CONFIG, else manifest_platform.yaml here.",
            expose_value=False,
            callback=_keep,
        ),
        TyperOption(
            param_decls=["--dataset"],
            metavar="NAME",
            help="The dataset; may be left out where there is only one.",
            autocompletion=_completed("datasets"),
            expose_value=False,
            callback=_keep,
        ),
        TyperOption(
            param_decls=["--json"],
            is_flag=True,
            default=False,
            help="Answer with JSON on stdout.",
            expose_value=False,
            callback=_keep,
        ),
    ]


_WHOLE = 500
"""Longer than any first sentence of a help."""


class Command(TyperCommand):
    """A command with the common options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._keep_texts()
        self.params += common_options()

    def _keep_texts(self) -> None:
        """Puts the texts of arguments back: a newer Click sets its own in their place, which Typer does not give it."""
        lost = {param.name: param for param in self.params if isinstance(param, TyperArgument) and not param.help}
        if lost and self.callback:
            for name, told in get_params_from_function(self.callback).items():
                if name in lost and isinstance(told.default, ArgumentInfo):
                    lost[name].help = told.default.help

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: Typer tells of arguments with the options, and a newer Click would once more."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """Its whole first sentence: a list of commands wraps it."""
        return super().get_short_help_str(max(limit, _WHOLE))

    def invoke(self, ctx: click.Context) -> Any:
        """Runs it. Where it is refused and something helps, that is noted on the error, as it must be typed here."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:  # of which Typer makes an exit code, and says nothing
            raise Interrupted.of(error, "interrupted; what was done stays, and it may be run again") from error
        except Exception as error:
            if remedy := getattr(error, "remedy", None):
                from manifest_platform.cli.remedies import typed, with_remedy

                error.add_note(with_remedy(str(error), remedy, typed(ctx)))
            raise


PROGRAM = "manifest-platform"

RUN_VARIABLE = "MANIFEST_PLATFORM_RUN_ID"
"""The variable of the environment that names the run of every command which is not told another one."""


def _keep_run(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    from manifest_platform.manifest.records import InvalidRunId, run_id_of

    if value is not None:
        try:
            _keep(context, parameter, run_id_of(value))
        except InvalidRunId as error:
            raise click.BadParameter(str(error), context, parameter) from error


class Recording(Command):
    """A command that records what it does: its run can be named."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(
            TyperOption(
                param_decls=["--run-id"],
                metavar="ID",
                help=f"The run that its records name; else ${RUN_VARIABLE}, else a new UUID.",
                expose_value=False,
                callback=_keep_run,
            )
        )


ItemName = Annotated[
    str,
    typer.Argument(metavar="ITEM", help="Its name, as run=YYYY-MM-DD-HH-MM-SS, or its URI.", autocompletion=completed_items),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the records.")]

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
"""The commands whose modules are imported."""


class Group(TyperGroup):
    """A group of commands with the common options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += common_options()
        self.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")  # a newer Click suggests by itself


def group(name: str, help: str, cls: type[Group] = Group) -> typer.Typer:  # noqa: A002 - as Typer calls it
    """A group of commands, registered by its name."""
    made = typer.Typer(cls=cls, help=help, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(made, name=name)
    return made


def examples(*lines: str) -> str:
    """What a command's help ends with: command lines to start from, as they follow the program's name."""
    return "\b\nExamples:\n" + "\n".join(f"  {PROGRAM} {line}" for line in lines)


class _Listed(click.Command):
    """What the help shows of a command that is not imported for it."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return self.help or ""


class _Commands(Group):
    """All commands by name. A command's module is imported when the command is called; a plug-in's, for the help as well."""

    def __init__(self) -> None:
        super().__init__(
            name=PROGRAM,
            commands={name: _Listed(name, help=known.help) for name, known in COMMANDS.items()},
            help="Directories in object storage become ordered, exactly-once warehouse tables: the operator's commands.",
            epilog=f"\b\nExit codes:\n{exits.table()}\n\n\b\n"
            "Items are named by their run (run=2024-05-14-12-40-00), window\n"
            "(incr/stoptime=202405141245) or URI. Times are in UTC.",
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        self.params += [
            TyperOption(
                param_decls=["--version"],
                is_flag=True,
                default=False,
                help="Show the release, Python's, and what is installed of each extra.",
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
        """Only where a name or all names are asked for: they stand in the metadata of every installed package."""
        for name in plugins.names(plugins.COMMANDS):
            self.commands.setdefault(name, _PluginCommand(name))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else None, rest


class _Listed(click.Command):
    """What the help shows of a command that is not imported for it."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return self.help or ""


class _PluginCommand(click.Command):
    """What the help shows of a plug-in's command: its own first sentence, or why it cannot be loaded."""

    def get_short_help_str(self, limit: int = 45) -> str:
        try:
            return load(self.name or "").get_short_help_str(limit)
        except CommandBroken as error:
            return str(error)


def load(name: str) -> click.Command:
    """A command or a group of them: the platform's own from its module, else a plug-in's. Raises CommandBroken."""
    if name in COMMANDS:
        import_module(f"manifest_platform.cli.{COMMANDS[name].module}")
        return typer.main.get_group(app).commands[name]
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    try:
        alone.command(name, cls=Command)(plugins.load(plugins.COMMANDS, name))
        return typer.main.get_command(alone)
    except Exception as error:
        raise CommandBroken(f"cannot load the plug-in's command {name!r}: {type(error).__name__}: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; errors that are foreseen are one message on stderr."""
    _collect_less_garbage(ends_with_it=arguments is None)
    outward.guard()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    # Of a shell, as Click has it; `shells.VARIABLE` is its name.
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
            print_json(error_document(error, f"a defect: {error}; stderr has the traceback"))
        raise


def _collect_less_garbage(ends_with_it: bool) -> None:
    """Keeps Python from looking for garbage among what imports make, which stays: a quarter of the time of `status`.

    `ends_with_it`: nor at the exit of the process, unless a warehouse was asked: DuckDB takes what is frozen for leaks, and
    tells of each.
    """
    gc.set_threshold(100_000)
    if ends_with_it:
        atexit.register(lambda: None if "manifest_platform.warehouse.apply" in sys.modules else gc.freeze())


def fail(message: str, error: BaseException, code: Exit, as_json: bool, **told: Any) -> int:
    """Says what went wrong, in JSON with what else is to be told, and returns the exit code.

    What others have said may have several lines: all but the first are set in, so that none passes for an answer of ours.
    """
    first, *others = f"error: {message}".split("\n")
    warn("\n".join([first, *(line if line.startswith(" ") else f"  {line}" for line in others)]))
    if as_json:
        print_json({**error_document(error, message), **told})
    return code


def error_document(error: BaseException, message: str) -> dict[str, Any]:
    """What JSON says of an error."""
    return {"error": {"type": type(error).__name__, "message": message}}
