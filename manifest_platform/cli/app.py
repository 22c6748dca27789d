"""The application that the commands belong to: exit codes, the options that all take, and how a command ends.

Belongs here: what every command needs and no command is, and nothing that is slow to import. A module of commands registers
them with `app`, and is named in `commands`.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from importlib import import_module
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from manifest_platform import outward, plugins
from manifest_platform.cli.commands import COMMANDS
from manifest_platform.cli.output import print_json, warn


class Exit(IntEnum):
    """What the exit code says."""

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    BLOCKED = 3
    NOTHING = 4


class WrongUse(Exception):
    """The command was given something that it cannot mean; the message says what it takes."""


class CommandBroken(Exception):
    """A plug-in's command cannot be loaded; the message names it and says why."""


class Interrupted(Exception):
    """A drain was told to end, by Ctrl-C or a signal."""


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


class Command(TyperCommand):
    """A command with the common options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += common_options()

    def invoke(self, ctx: click.Context) -> Any:
        """Runs it. Where it is refused and something helps, that is noted on the error, as it must be typed here."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if remedy := getattr(error, "remedy", None):
                from manifest_platform.cli.remedies import typed, with_remedy

                error.add_note(with_remedy(str(error), remedy, typed(ctx)))
            raise


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


ItemName = Annotated[str, typer.Argument(metavar="ITEM", help="Its name, as run=YYYY-MM-DD-HH-MM-SS, or its URI.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the records.")]

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
"""The commands whose modules are imported."""


class _Commands(TyperGroup):
    """All commands by name. A command's module is imported when the command is called; a plug-in's, for the help as well."""

    def __init__(self) -> None:
        super().__init__(
            name="manifest-platform",
            commands={name: click.Command(name, help=known.help) for name, known in COMMANDS.items()},
            help="Directories in object storage become ordered, exactly-once warehouse tables: the operator's commands.",
            epilog="\b\nExit codes: 0 done, 1 failed, 2 used wrongly, 3 blocked, 4 nothing to do.\n"
            "Items are named by run name (run=2024-05-14-12-40-00), window (incr/stoptime=202405141245) or URI.",
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        self.params += common_options()

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
    as_json = "--json" in arguments
    try:
        return _Commands().main(args=arguments, prog_name="manifest-platform", standalone_mode=False) or Exit.DONE
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
        return fail(str(error) or "interrupted", error, Exit.FAILED, as_json)
    except Exception as error:
        from manifest_platform.cli.expected import EXPECTED, ConfigError

        if isinstance(error, (ConfigError, *EXPECTED)):
            message = "\n".join(getattr(error, "__notes__", ())) or str(error)
            return fail(message, error, Exit.WRONG_USE if isinstance(error, ConfigError) else Exit.FAILED, as_json)
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
        print_json({"error": {"type": type(error).__name__, "message": message}, **told})
    return code


@contextmanager
def ending_well(then: str) -> Generator[None]:
    """Lets a terminated run give its leases back like an interrupted one. Raises Interrupted; `then`: what comes next."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(f"interrupted; the leases are given back, and {then}") from error
    finally:
        signal.signal(signal.SIGTERM, before)
