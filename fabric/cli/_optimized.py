"""What the verbs of `fabric optimize` share: options, the line of proof, and files of results."""

import csv
import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Float

from fabric._errors import ModelError
from fabric.cli._output import check_output, emit, write
from fabric.cli._run import load
from fabric.cli._units import counted
from fabric.readers._files import save
from fabric.runs import History, check_picture
from fabric.scenario import Scenario, scenario_names
from fabric.traffic._table import read_bytes


def to_write(flag: str, *, picture: bool = False) -> Callable[[Path | None], Path | None]:
    """Return a callback of an option: it raises before any work if its file cannot be written."""

    def checked(file: Path | None) -> Path | None:
        try:
            check_output(file)
        except ModelError as error:
            raise ModelError(str(error).replace("`-o ", f"`{flag} ", 1)) from None
        if picture and file is not None:
            check_picture(file)
        return file

    return checked


Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Keep the state here, and go on from there."),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        help="Draw objective, bound and gap over the steps here: .svg, .png or .pdf.",
        callback=to_write("--plot", picture=True),
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Of what is drawn.", min=0)]
Tolerance = Annotated[
    float, typer.Option("--tolerance", help="Gap up to which the answer counts as certified.")
]
Control = Annotated[
    bool, typer.Option("--control/--no-control", help="Also random moves, of the same effort.")
]
Hosts = Annotated[
    str | None, typer.Option("--hosts", help="Only endpoints whose name matches, such as 'dgx-0*'.")
]
RankFile = Annotated[
    Path | None,
    typer.Option(
        "--rank-file",
        help="Write a rank file of Open MPI here.",
        callback=to_write("--rank-file"),
    ),
]
Cores = Annotated[
    int, typer.Option("--cores", help="Of a server for each GPU, in the rank file.", min=1)
]
Hostfile = Annotated[
    Path | None,
    typer.Option(
        "--hostfile",
        help="Write the file of SLURM_HOSTFILE here, for srun --distribution=arbitrary.",
        callback=to_write("--hostfile"),
    ),
]
GpuFile = Annotated[
    Path | None,
    typer.Option(
        "--gpu-file",
        help="Write the GPU of every rank here, by line.",
        callback=to_write("--gpu-file"),
    ),
]


def finish(
    answer: dict[str, Any], history: History, plot: Path | None,
    lines: Callable[[dict[str, Any]], list[str]], format: str, output: Path | None,
) -> None:  # fmt: skip
    """Print or write the answer, and draw how it converged, if asked to."""
    emit(answer, lines, format, output)
    if plot is not None:
        history.plot(plot, title=answer["schema"].split("/")[0].replace(".", " "))


def plainly(value: float) -> str:
    """Return a number of no unit.

    Examples:
        >>> plainly(1.25)
        '1.25'
    """
    return f"{value:.6g}"


def proof(answer: dict[str, Any], say: Callable[[float], str] = plainly) -> str:
    """Return a line that says how good an answer provably is.

    Args:
        answer: With bound, gap, and what it took.
        say: Of a value of the objective.

    Examples:
        >>> told = {"bound": 1.0, "gap": 5e-4, "certified": True, "evaluations": 1200, "seconds": 2}
        >>> proof(told | {"control": 1.25})
        '  bound 1, gap 0.05 %, certified; 1,200 evaluations in 2.0 s; random moves reach 1.25'
    """
    sure = "certified" if answer["certified"] else "not certified"
    line = (
        f"  bound {say(answer['bound'])}, {_gap(answer['gap'])}, {sure}; "
        f"{counted(answer['evaluations'], 'evaluation')} in {answer['seconds']:.1f} s"
    )
    random = answer.get("control")
    return line if random is None else f"{line}; random moves reach {say(random)}"


def _gap(gap: float | None) -> str:
    """Return a gap in words; None: the bound is 0."""
    if gap is None:
        return "no finite gap"
    return f"gap {100 * gap if gap > 1e-9 else 0.0:.3g} %"


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as CSV; what is a list in a cell is joined by spaces."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["switch"], lineterminator="\n")
    writer.writeheader()
    plain = lambda cell: " ".join(map(str, cell)) if isinstance(cell, list | tuple) else cell
    writer.writerows([{key: plain(cell) for key, cell in row.items()} for row in rows])
    write(path, lambda target: save(target, text.getvalue()))


def write_ranks(
    found: Any, cores: int, rank_file: Path | None,
    hostfile: Path | None, gpu_file: Path | None,
) -> None:  # fmt: skip
    """Write the files of `--rank-file`, `--hostfile` and `--gpu-file`, those that are wanted.

    Args:
        found: A report of `placement` or `joint`.
        cores: Of a server for each GPU, in the rank file.
        rank_file: Where to write it, None if it is not wanted.
        hostfile: The same.
        gpu_file: The same.
    """
    for file, content in (
        (rank_file, found.rank_file(cores)), (hostfile, found.slurm_hostfile()),
        (gpu_file, found.gpu_file()),
    ):  # fmt: skip
        if file is not None:
            write(file, functools.partial(save, text=content))


def square(file: Path) -> Float[np.ndarray, "rows columns"]:
    """Return a matrix of numbers from an NPY or CSV file."""
    data = read_bytes(file)
    try:
        if data.startswith(b"\x93NUMPY"):
            return np.asarray(np.load(io.BytesIO(data), allow_pickle=False), np.float64)
        return np.loadtxt(io.BytesIO(data), delimiter=",", ndmin=2)
    except (ValueError, UnicodeDecodeError) as error:
        message = (
            f"'{file}' needs a row of numbers with commas for every block or rank, or the same as "
            f"NPY: {error}."
        )
        raise ModelError(message) from None


def scenario_of(name: str, settings: list[str] | None, seed: int | None, hint: str) -> Scenario:
    """Return the scenario of a verb that takes fabrics too.

    Args:
        name: A file or a name.
        settings: Of `--set`.
        seed: Of `--seed`.
        hint: What to do if a fabric is meant.

    Raises:
        ModelError: If it is none, or as `Scenario.load`.
    """
    if name not in scenario_names() and not name.endswith((".yaml", ".yml")):
        known = ", ".join(scenario_names())
        message = f"'{name}' is no scenario (`.yaml`, or {known}). {hint}"
        raise ModelError(message)
    return load(name, settings, seed)
