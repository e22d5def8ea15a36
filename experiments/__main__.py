"""`python -m experiments list`, `python -m experiments NAME [--smoke] [--format json]`."""

import argparse
import importlib
import json
import operator
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import experiments
from experiments.rows import Result


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every row holds, 1 if ours falls short, 2 for an unknown name or absent data."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("name", help="list, or the name of an experiment")
    parser.add_argument("--smoke", action="store_true", help="the smallest size that runs it all")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    found = known()
    if options.name == "list":
        print("\n".join(f"{name:12} {question(module)}" for name, module in found.items()))
        return 0
    if options.name not in found:
        print(f"'{options.name}' is no experiment. Known: {', '.join(found)}.", file=sys.stderr)
        return 2
    import jax

    jax.config.update("jax_enable_x64", True)
    try:
        result: Result = found[options.name].run(smoke=options.smoke)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    if options.format == "json":
        answer = as_dict(options.name, result)
        # NumPy's numbers as plain ones.
        print(json.dumps(answer, indent=2, default=operator.methodcaller("item")))
    else:
        print("\n".join(as_text(options.name, result)))
    return 0 if result.reproduced else 1


def known() -> dict[str, ModuleType]:
    """Return every experiment: the packages in this folder that have a module `experiment`."""
    here = Path(experiments.__file__).parent
    names = [m.name for m in pkgutil.iter_modules([str(here)]) if m.ispkg]
    return {
        name: importlib.import_module(f"experiments.{name}.experiment")
        for name in sorted(names)
        if (here / name / "experiment.py").is_file()
    }


def question(module: ModuleType) -> str:
    """Return the first line of an experiment's description."""
    return (module.__doc__ or "").partition("\n")[0]


def as_dict(name: str, result: Result) -> dict[str, Any]:
    """Return the answer for JSON, with what it was computed by."""
    import jax
    import numpy as np

    from fabric import __version__

    versions = {"fabric": __version__, "jax": jax.__version__, "numpy": np.__version__}
    return {
        "name": name,
        "rows": [row.as_dict() for row in result.rows],
        "summary": dict(result.summary),
        "notes": list(result.notes),
        "versions": versions,
    } | ({"tables": result.tables} if result.tables else {})


def as_text(name: str, result: Result) -> list[str]:
    """Return the answer for people."""
    width = max([len(row.id) for row in result.rows] + [2])
    lines = [
        name,
        f"{'':{width}}  {'quoted':>12} {'computed':>12} {'unit':8} {'error':>8}  verdict",
    ]
    for row in result.rows:
        lines.append(
            f"{row.id:{width}}  {row.quoted:12.5g} {row.computed:12.5g} {row.unit:8} "
            f"{100 * row.error:+7.2f} %  {row.verdict}"
        )
        if row.note:
            lines.append(f"{'':{width}}  {row.note}")
    for key, value in result.summary.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        lines.append(f"{key}: {shown}")
    for title, table in result.tables.items():
        lines.append(title)
        lines += [f"  {'  '.join(str(value) for value in line.values())}" for line in table]
    return [*lines, *result.notes]


if __name__ == "__main__":
    sys.exit(main())
