"""The command group `streamjoin`: it loads a command when that is asked for, and prints an error as one line."""

from __future__ import annotations

import difflib
import gc
import importlib
import importlib.metadata
import itertools
import logging
import os
import re
import select
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from streamjoin_ds.errors import DependencyMissingError, StreamJoinError, named_in, table_of_errors, where_more
from streamjoin_ds.logs import (
    FORMAT_VARIABLE,
    FORMATS,
    LEVEL_VARIABLE,
    LEVELS,
    has_json_lines,
    log_to_stderr,
    write_json_lines,
)
from streamjoin_ds.machine import share_heap, spare_pandas
from streamjoin_ds.version import version

__all__ = ["DISTRIBUTION", "error_text", "group", "main", "script"]

DISTRIBUTION = "streamjoin-ds"
_log = logging.getLogger("streamjoin_ds.cli.main")  # also where this module is run as a script
_EXPECTED_ERROR_STATUS = 2
_UNEXPECTED_ERROR_STATUS = 3
# A setting of Spark or of a URL, and something after it: KEY=VALUE. Of a URL: a password before the host.
_SECRET_SETTING = re.compile(
    r"(?i)(?:[?&]|(?=\bspark\.))([\w.-]*(?:secret|passw(?:or)?d|passphrase|token|[._-]sas[._-]|(?:access|account|api"
    r"|encryption|private)[._-]?key)[\w.-]*)=(?!arn:)[^\s&]"
)
_NO_SECRETS = ("file", "path", "location", "provider", "type")  # what such settings name holds the secret, or gets it
_LOGIN = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*)://[^/@\s:]*:[^/@\s]+@")
# Where a command stands (module:attribute), and its line of the help: `streamjoin --help` imports no command.
_COMMANDS = {
    "run": ("run:command", "Run a join until it is stopped or its input ends."),
    "sql": ("sql:command", "Run the joins that a text of SQL statements asks for."),
    "demo": ("demo:command", "Join ships at sea as two live streams, and see which come near each other."),
    "intake": ("intake:command", "Keep messages of MQTT or HTTP in a folder that a join reads."),
    "data": ("data:command", "Put recorded data to try joins on, or what watches a join, into a folder."),
    "look": ("look:command", "Show what a file, folder, topic or table is, and how a join reads it."),
    "new": ("new:command", "Write a join of two sources as a file of TOML, with comments, to begin with."),
    "explore": ("explore:command", "Show how many matches other bands, windows and delays would give."),
    "explain": ("explain:command", "Show how a join would be carried out, and why."),
    "watch": ("watch:command", "Show a join on a page, or to Prometheus and OpenTelemetry, beside its query."),
    "schema": ("schema:command", "Print the JSON Schema of a join's TOML file, for editors."),
    "inspect": ("checkpoint:inspect", "Show what a checkpoint holds: cells, windows, blocks, watermarks."),
    "repair": ("checkpoint:repair", "Mend a checkpoint and its tables where possible, and say what is lost."),
    "vacuum": ("checkpoint:vacuum", "Remove what crashes left behind in a checkpoint."),
    "bench": ("bench:command", "Measure a join over its own data on this machine, beside DuckDB."),
    "help": ("help:command", "Show the help of a command, of an error, or the options of a kind of source."),
    "doctor": ("doctor:command", "Check that this machine has what a join needs, and say what to do."),
}
_USING_NO_PANDAS = {"look", "new", "explore", "explain", "intake"}


class LazyGroup(click.Group):
    """A group whose commands stand in modules beside this one, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's module and return the command; None if there is none of that name."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(importlib.import_module(f"streamjoin_ds.cli.{module}"), attribute)
        except ModuleNotFoundError as error:
            raise _missing_package(error) from error
        _give_log_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that arguments name; of a name that is none, say the near ones."""
        near = difflib.get_close_matches(args[0].lower(), _COMMANDS, 3, 0.5) if args[0] not in _COMMANDS else []
        if near and not args[0].startswith("-"):
            ctx.fail(f"There is no command '{args[0][:64]}'. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help's list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes one line on standard error."""
        try:
            return super().invoke(ctx)
        except click.exceptions.ClickException as error:
            if not has_json_lines():
                raise
            _log.error("%s", error.format_message())
            ctx.exit(error.exit_code)
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if ctx.params.get("traceback"):
                raise
            if isinstance(error, BrokenPipeError) and _nobody_reads():
                raise  # click ends the process, and says nothing
            text, expected = error_text(error)
            line, end, slip = text.partition("\n")  # a slip is shown at its place in lines of its own
            code = line.partition(":")[0]
            is_named = code in table_of_errors()
            if has_json_lines():
                facts = {"code": code, "more": where_more(code)} if is_named else {}
                _log.error("%s", text, extra={"facts": facts})
            else:
                more = f" [{where_more(code)}]" if is_named else ""
                click.echo(f"streamjoin: {line}{more}{end}{slip}", err=True)
            ctx.exit(_EXPECTED_ERROR_STATUS if expected else _UNEXPECTED_ERROR_STATUS)


def _nobody_reads() -> bool:
    """Whether the reader of standard output is gone, as `head` is after its lines."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in output.poll(0))


def error_text(error: BaseException) -> tuple[str, bool]:
    """Return one line that says what is wrong, and whether this package raises such an error on purpose."""
    named = named_in(error)
    if named is not None:
        return named[1], True
    if isinstance(error, ModuleNotFoundError):
        return str(_missing_package(error)), True
    first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
    return f"{type(error).__name__}: {first_line} (streamjoin --traceback ... shows where)", False


def _missing_package(error: ModuleNotFoundError) -> StreamJoinError:
    package = (error.name or "").partition(".")[0]
    if package == "streamjoin_ds":
        message = f"This installation lacks its own module {error.name}."
        return DependencyMissingError(message, name=package, hint="build and install it again: make setup")
    return DependencyMissingError(f"The package {package} is not installed.", name=package, hint=_install_hint(package))


def _install_hint(package: str) -> str:
    """Return the `pip install` line for a package: with the extra of this package that brings it, if there is one."""
    try:
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name
    except ImportError:  # `packaging` may itself be the package that is missing
        return f"pip install {package}"
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    for text in requirements:
        requirement = Requirement(text)
        extra = re.search(r"extra == \"([^\"]+)\"", str(requirement.marker))
        if extra and canonicalize_name(requirement.name) == canonicalize_name(package):
            return f"pip install '{DISTRIBUTION}[{extra.group(1)}]'"
    return f"pip install {package}"


def _level(ctx: click.Context, param: click.Parameter, level: str | None) -> None:
    """Log from this level on, here and in the processes that this one starts."""
    if level is None:
        return
    if level not in LEVELS:
        msg = f"it is not one of {', '.join(LEVELS)}."
        raise click.BadParameter(msg, ctx, param)
    os.environ[LEVEL_VARIABLE] = level
    log_to_stderr(level)


def _form(ctx: click.Context, param: click.Parameter, form: str | None) -> None:
    """Log in this form, here and in the processes that this one starts."""
    if form is None:
        return
    if form not in FORMATS:
        msg = f"it is not one of {', '.join(FORMATS)}."
        raise click.BadParameter(msg, ctx, param)
    _log_in(form)


def _log_in(form: str) -> None:
    os.environ[FORMAT_VARIABLE] = form
    if form == "json":
        write_json_lines()
        os.environ[LEVEL_VARIABLE] = os.environ.get(LEVEL_VARIABLE) or "info"
    log_to_stderr(os.environ.get(LEVEL_VARIABLE) or "warning", form)


def _verbose(ctx: click.Context, param: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        _level(ctx, param, "debug")


def _log_options(command: Any, *, hidden: bool = False) -> Any:
    """Return a command with the options that say what is logged; of several given ones the last counts."""
    words = "|".join(LEVELS)
    told = "Log to standard error from this level on; Spark's workers log to Spark's own log.  [default: warning]"
    # Eager: an error of another option is then told in the form that is asked for.
    silent: dict[str, Any] = {"expose_value": False, "hidden": hidden, "is_eager": True}
    verbose = click.option("--verbose", is_flag=True, callback=_verbose, help="Same as --log-level debug.", **silent)
    told_form = "How standard error is written; json: an object a line, from level info on.  [default: text]"
    form = click.option(
        "--log-format", callback=_form, metavar="|".join(FORMATS), envvar=FORMAT_VARIABLE, help=told_form, **silent
    )
    return click.option("--log-level", callback=_level, metavar=words, help=told, **silent)(verbose(form(command)))


def _give_log_options(command: click.Command) -> None:
    """Let the group's log options also stand after a command's name."""
    below = getattr(command, "commands", {})
    for inner in below.values():
        _give_log_options(inner)
    if not below and all(parameter.name != "verbose" for parameter in command.params):
        _log_options(command, hidden=True)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version(), prog_name="streamjoin")
@click.option("--traceback", is_flag=True, help="Show the whole stack trace of an error.")
@_log_options
def group(traceback: bool) -> None:
    """Windowed band joins over fast streams: rows that are close, not equal."""


def secrets_in(arguments: Sequence[str]) -> list[str]:
    """Return the names of what looks like a secret in arguments, which every user of the machine sees."""
    found = []
    for argument in arguments:
        settings = [match[1] for match in _SECRET_SETTING.finditer(argument)]
        found += [name for name in settings if not name.lower().endswith(_NO_SECRETS)]
        found += [f"{match[1]}://" for match in _LOGIN.finditer(argument)]
    return found


def script() -> NoReturn:
    """Run the `streamjoin` script in a process of its own."""
    # NumPy's library for matrices makes a thread for each core as it is imported, which spins for a while: 90 ms of CPU
    # time on two cores. No process of ours multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "--local" in sys.argv or {*sys.argv[1:2]} & _USING_NO_PANDAS:
        spare_pandas()
        share_heap()
    main()


def main() -> NoReturn:
    """Do what the `streamjoin` script does; `--traceback` may stand anywhere among its arguments."""
    arguments = sys.argv[1:]
    asked = ("--log-format", "json")
    is_asked = asked in itertools.pairwise(arguments) or "=".join(asked) in arguments
    if is_asked or os.environ.get(FORMAT_VARIABLE) == "json":
        _log_in("json")  # what is told before the arguments are understood is told so, too
    if names := secrets_in(arguments):
        what = f"{', '.join(dict.fromkeys(names))}: this looks like a secret, and every user of this machine sees the "
        hint = "arguments of processes. Hint: put it into the file of --config (mode 0600), or the environment"
        click.echo(f"streamjoin: {what}{hint}", err=True)
    if "--traceback" in arguments:
        arguments = ["--traceback", *(argument for argument in arguments if argument != "--traceback")]
    try:
        group.main(args=arguments, prog_name="streamjoin")
    finally:
        gc.freeze()  # else Python looks through all that was imported once more as it ends
    raise SystemExit(0)


if __name__ == "__main__":
    script()
