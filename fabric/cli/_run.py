"""`fabric run`: a scenario in, the step time and what costs it out."""

import json
from typing import Annotated, Any

import typer

from fabric._errors import InfeasibleError, ModelError, UnsolvedError
from fabric.cli._answer import CERTIFIED
from fabric.cli._output import FORMATS, Format, Output, check_output, emit, known
from fabric.cli._run_text import text
from fabric.scenario import Answer, Scenario, json_schema
from fabric.scenario._layers import settings_of

AllowInfeasible = Annotated[
    bool,
    typer.Option("--allow-infeasible", help="Answer also where the model does not fit in memory."),
]

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="A.B=VALUE", help="Replace a value of the scenario, in YAML; again."
    ),
]


def run(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file, or the name of one that ships: `demo`."),
    ] = None,
    settings: Settings = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of a routing that draws; as `run.seed`.")
    ] = None,
    allow_infeasible: AllowInfeasible = False,
    dump_config: Annotated[
        bool, typer.Option("--dump-config", help="Print the scenario with all defaults instead.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--json-schema", help="Print the JSON Schema of scenario files instead.")
    ] = False,
    format: Format = "text",
    output: Output = None,
) -> None:
    """Answer a scenario: step time, where it goes, memory, bottleneck links and what they buy."""
    known("--format", format, FORMATS)
    check_output(output)
    if schema:
        shape = json_schema()
        emit(shape, lambda _: json.dumps(shape, indent=2).split("\n"), format, output)
        return
    loaded = load(scenario, settings, seed)
    if dump_config:
        whole = loaded.resolved()
        emit(whole.data, lambda _: whole.dump().splitlines(), format, output)
        return
    emit(answer_of(loaded, allow_infeasible).as_dict(), text, format, output)


def load(
    name: str | None, settings: list[str] | None, seed: int | None = None, flag: str = "--set"
) -> Scenario:
    """Return the scenario of a command line.

    Args:
        name: A file or a name.
        settings: Lines such as "run.placement=first".
        seed: Of `--seed`.
        flag: What the option of the settings is called.
    """
    if name is None:
        message = "SCENARIO is missing. Name a file, or one that ships: `fabric run demo`."
        raise ModelError(message)
    values: dict[str, Any] = settings_of(settings or (), flag)
    if seed is not None:
        values["run.seed"] = seed
    return Scenario.load(name, values, flag=flag)


def answer_of(scenario: Scenario, allow_infeasible: bool, *, cases: bool = True) -> Answer:
    """Return the answer of a scenario, its rates certified.

    Raises:
        UnsolvedError: If a certificate does not hold.
    """
    try:
        answer = scenario.answer(allow_infeasible=allow_infeasible, cases=cases)
    except InfeasibleError as error:
        if "does not fit" not in str(error):
            raise
        message = f"{error}\n`--allow-infeasible` answers all the same."
        raise InfeasibleError(message) from None
    if not answer.certificate <= CERTIFIED:
        message = (
            f"The rates are not max-min fair: the certificate is {answer.certificate:.1e}, above "
            f"{CERTIFIED:.0e}. Run `fabric doctor`."
        )
        raise UnsolvedError(message)
    return answer
