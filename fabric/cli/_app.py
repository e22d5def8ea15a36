"""The `fabric` command: its verbs, and how what goes wrong becomes one message and a code."""

import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fabric._errors import FabricError, path_in_quotes, printable
from fabric.cli._coll import coll
from fabric.cli._compare_runs import compare
from fabric.cli._doctor import doctor, no_device
from fabric.cli._list import list_known
from fabric.cli._optimize import optimize
from fabric.cli._output import PIPE_CLOSED, silence
from fabric.cli._run import run
from fabric.cli._search import search
from fabric.cli._solve import solve
from fabric.cli._topo import topo
from fabric.cli._whatif import whatif

INTERRUPTED = 130
_STOPPED = "interrupted; nothing was written."
# What the parser calls a wrong value, and what people call it.
_SAID = {
    r"Input should be a valid integer.*": "it needs a whole number",
    r"Input should be a valid number.*": "it needs a number",
    r"Input should be greater than or equal to (\S+)": r"it needs \1 or more",
    r"Input should be less than or equal to (\S+)": r"it needs \1 or less",
}

app = typer.Typer(
    name="fabric",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> bool:
    if value:
        from fabric._version import __version__

        typer.echo(f"fabric-solver {__version__}")
        raise typer.Exit
    return value


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Exact max-min rates, bottleneck links and what to change, for the networks of AI clusters."""


app.command("run")(run)
app.command("search")(search)
app.command("whatif")(whatif)
app.add_typer(optimize)
app.command("compare")(compare)
app.command("solve")(solve)
app.command("topo")(topo)
app.command("coll")(coll)
app.command("list")(list_known)
app.command("doctor")(doctor)


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        args: Without the name of the program. Default: those of this process.

    Returns:
        0: answered. 2: wrong input. 3: cannot be served. 4: unsolved, or a check failed. 130:
        interrupted. 141: who reads the answer stopped early.
    """
    try:
        return _run(args)
    except (OSError, SystemExit) as error:
        if not _pipe_closed(error):
            raise
        silence()
        return PIPE_CLOSED


def _pipe_closed(error: BaseException | None) -> bool:
    """Return whether a closed pipe is behind an error: click and rich exit with 1 for it."""
    while error is not None and not isinstance(error, BrokenPipeError):
        error = error.__cause__ or error.__context__
    return error is not None


def _run(args: Sequence[str] | None) -> int:
    import jax

    # Rates are compared to 1e-9; only the command line may set this for the whole process.
    jax.config.update("jax_enable_x64", True)
    given = sys.argv[1:] if args is None else list(args)
    try:
        code = app(args=given, prog_name="fabric", standalone_mode=False)
    except FabricError as error:
        return _say(str(error), error.exit_code)
    except NotImplementedError as error:
        return _say(str(error), FabricError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _stopped(given)
    except MemoryError:
        return _say("not enough memory. Narrow the endpoints with `--hosts`.", 3)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"'{error.filename}': " if error.filename else ""
        return _say(f"{where}{error.strerror or error}.", FabricError.exit_code)
    except Exception as error:
        if hasattr(error, "format_message"):
            return _usage(error)
        if _was_interrupted(error):
            return _stopped(given)
        if fault := no_device():
            return _say(". ".join(fault), FabricError.exit_code)
        raise
    # Typer turns Ctrl-C into this code without a word.
    if code == INTERRUPTED:
        return _stopped(given)
    return code if isinstance(code, int) else 0


def _was_interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C is behind an error: a compiled kernel raises `SystemError` from it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _stopped(given: Sequence[str]) -> int:
    """Say after Ctrl-C that there is no answer, and how to go on where a checkpoint is kept."""
    words = [part for word in given for part in word.split("=", 1)]
    after = dict(itertools.pairwise(words)).get("--checkpoint")
    # A curve keeps a file per budget: FILE.0, FILE.1 and so on.
    if after is None or not (Path(after).is_file() or Path(f"{after}.0").is_file()):
        return _say(_STOPPED, INTERRUPTED)
    kept = f"the same command goes on from the checkpoint {path_in_quotes(after)}."
    return _say(f"interrupted; {kept}", INTERRUPTED)


def _usage(error: Exception) -> int:
    """Say what is wrong with a command line, as typer found it."""
    message = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        if message.strip():
            typer.echo(message, err=True)
        return FabricError.exit_code
    for jargon, said in _SAID.items():
        message = re.sub(jargon, said, message)
    hint = f" See `{context.command_path} --help`." if context is not None else ""
    end = "" if message.endswith((".", "?")) else "."
    return _say(f"{message}{end}{hint}", getattr(error, "exit_code", FabricError.exit_code))


def _say(message: str, code: int) -> int:
    # A message has a line for every fault.
    typer.echo("\n".join(map(printable, f"error: {message}".split("\n"))), err=True)
    return code
