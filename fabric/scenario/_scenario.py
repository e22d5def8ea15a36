"""`Scenario`: a scenario file, checked, with its layers resolved."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric._errors import FabricError, ModelError, nearest, raise_faults
from fabric.scenario._build import Built, Grounds, build
from fabric.scenario._capped import capped
from fabric.scenario._cases import Answer, answered, stepped, told_of
from fabric.scenario._document import Document
from fabric.scenario._faults import checked
from fabric.scenario._filled import filled, missing
from fabric.scenario._layers import BLOCKS, load, resolved, with_settings
from fabric.training import StepReport

_NAMED = rf"`((?:{'|'.join(BLOCKS)})(?:\.\w+)+)(?:: [^`]*)?`(?! \()"
"""A key that an error names, with or without its value, and no place behind it yet."""


@dataclass(frozen=True)
class Scenario:
    """A training job on a fabric: model, hardware, fabric, layout and how it runs.

    Attributes:
        name: Of its file or preset.
        data: All of it, every `from` resolved and the defaults of its shape filled in; it loads
            again to the same.

    Examples:
        >>> scenario = Scenario.load("demo", {"run.placement": "spread"})
        >>> scenario.data["run"]["placement"], scenario.case("one spine out").name
        ('spread', 'demo, one spine out')
    """

    name: str
    data: dict[str, Any]
    document: Document = field(repr=False, compare=False)

    @classmethod
    def load(
        cls, source: str | Path, settings: Mapping[str, Any] | None = None, *, flag: str = "--set"
    ) -> "Scenario":
        """Return a scenario by its path or its name.

        Args:
            source: A YAML file, or a name of `scenario_names()`.
            settings: Values by dotted path that replace those of the file, such as
                {"run.placement": "first", "layout.dp": 16}. They count in all cases too, unless a
                case sets the same.
            flag: What errors call the origin of the settings.

        Raises:
            ModelError: If there is no such scenario, it cannot be read, a key or value is wrong;
                all faults at once, with their places.
        """
        document = load(str(source))
        return cls._of(Path(source).stem, document, settings or {}, flag)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], folder: Path | None = None) -> "Scenario":
        """Return a scenario from what its file would hold.

        Args:
            data: The keys of a scenario.
            folder: Paths of files are taken from here. Default: the current folder.

        Raises:
            ModelError: As `load`.
        """
        document = resolved(Document(dict(data), {}, Path() if folder is None else folder))
        return cls._of("scenario", document, {}, "")

    @classmethod
    def _of(
        cls, name: str, document: Document, settings: Mapping[str, Any], flag: str
    ) -> "Scenario":
        if settings:
            document = with_settings(document, settings, flag)
        scenario = cls(name, _plain(document), document)
        scenario._check_cases()
        return scenario

    def _check_cases(self) -> None:
        faults: list[str] = []
        names = [case["name"] for case in self.data.get("cases", [])]
        for case in self.data.get("cases", []):
            name, against = case["name"], case.get("against")
            if name == Answer.BASE:
                faults.append(
                    f"`cases`: '{name}' is reserved: it is what cases are compared with, the "
                    f"scenario itself. Give another name."
                )
            elif names.count(name) > 1:
                faults.append(f"`cases`: '{name}' is the name of several cases. Give others.")
            if against is not None and against not in (Answer.BASE, *names):
                known = nearest(against, [Answer.BASE, *names])
                faults.append(f"`cases` '{name}': there is no case '{against}'. {known}")
            try:
                self._with(case["set"], name)
            except ModelError as error:
                faults.append(f"`cases` '{name}': {error}")
        raise_faults(capped(list(dict.fromkeys(faults))))

    def _with(self, settings: Mapping[str, Any], name: str) -> "Scenario":
        document = with_settings(self.document, settings, f"case '{name}'")
        document.data.pop("cases", None)
        return Scenario(f"{self.name}, {name}", _plain(document), document)

    def case(self, name: str) -> "Scenario":
        """Return one of the cases as a scenario of its own.

        Raises:
            ModelError: If there is no such case.
        """
        known = {case["name"]: case["set"] for case in self.data.get("cases", [])}
        if name not in known:
            message = f"This scenario has no case '{name}'. {nearest(name, list(known))}"
            raise ModelError(message)
        return self._with(known[name], name)

    def resolved(self) -> "Scenario":
        """Return the scenario with what its fabric and its model fill in.

        GPU, profile, routing, every word of the layout, and whether missing cables are priced. It
        loads again to the same answer, and so do its cases: each sets, besides its own values,
        what would be filled in for it alone.

        Raises:
            ModelError: As `build`.
            InfeasibleError: As `build`.

        Examples:
            >>> data = Scenario.load("small").resolved().data
            >>> data["hardware"]["gpu"], data["fabric"]["routing"], data["run"]["allocation"]
            ('h100-sxm', 'spray', 'all')
        """
        own, others = self._built(cases=True)
        return self._filled(own, others)

    def _built(self, cases: bool) -> tuple[Built, list[tuple[dict[str, Any], Built]]]:
        """Return the objects of the scenario, and of each of its cases as written."""
        grounds: Grounds = {}
        own, others = self.build(grounds), []
        for case in self.data.get("cases", []) if cases else []:
            with told_of(case["name"]):
                others.append((case, self.case(case["name"]).build(grounds)))
        return own, others

    def _filled(self, own: Built, cases: list[tuple[dict[str, Any], Built]]) -> "Scenario":
        base = filled({key: item for key, item in self.data.items() if key != "cases"}, own)
        document = Document(base, {}, self.document.folder)
        told = []
        for case, built in cases:
            over = _plain(with_settings(document, case["set"], ""))
            want = filled(self.case(case["name"]).data, built)
            told.append(case | {"set": case["set"] | missing(over, want)})
        data = base | ({"cases": told} if told else {})
        return Scenario(self.name, data, Document(data, {}, self.document.folder))

    def dump(self) -> str:
        """Return the scenario as YAML, the defaults of its shape filled in; see `resolved`.

        Examples:
            >>> print(Scenario.load("demo").dump().splitlines()[0])
            schema: 1
        """
        import yaml

        return yaml.safe_dump(self.data, sort_keys=False, width=100, allow_unicode=True)

    def build(self, grounds: Grounds | None = None) -> Built:
        """Return network, model, layout and the rest, as `step` takes them.

        Args:
            grounds: Fabrics built before, which are used again; new ones are added.

        Raises:
            ModelError: If a file cannot be read, or the layout does not suit the model.
            InfeasibleError: If the layout needs more GPUs than there are.
        """
        with self._placed():
            return build(self.data, grounds)

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Add to the keys that an error names where they were written."""
        try:
            yield
        except FabricError as error:
            message = re.sub(_NAMED, self._with_place, str(error))
            raise type(error)(message) from None

    def _with_place(self, match: re.Match[str]) -> str:
        place = self.document.places.get(tuple(match[1].split(".")), "")
        return f"{match[0]} ({place})" if place else match[0]

    def step(self, *, allow_infeasible: bool = False, grounds: Grounds | None = None) -> StepReport:
        """Return the step of the scenario itself, without its cases.

        Args:
            allow_infeasible: Answer also where the model does not fit in memory.
            grounds: As in `build`.

        Raises:
            ModelError: As `build` and `training.step`.
            InfeasibleError: As `build` and `training.step`.

        Examples:
            >>> small = {"fabric.nodes": 4, "layout.pp": 1, "layout.dp": 4, "layout.gbs": 16,
            ...     "model": "llama-3.1-8b"}
            >>> Scenario.load("demo", small).step().gpus_used
            32
        """
        built = self.build(grounds)
        return stepped(built, by=built.by, allow_infeasible=allow_infeasible)

    def answer(self, *, allow_infeasible: bool = False, cases: bool = True) -> Answer:
        """Return the step of the scenario, of its cases, and of its fabric with all cables.

        Args:
            allow_infeasible: Answer also where the model does not fit in memory.
            cases: Whether the cases are wanted.

        Raises:
            ModelError: As `step`.
            InfeasibleError: As `step`.
        """
        own, others = self._built(cases)
        data = self._filled(own, others).data
        return answered(self.name, data, own, others, allow_infeasible)


def _plain(document: Document) -> dict[str, Any]:
    """Return a scenario, checked and with defaults, as plain data; a layout becomes one line."""
    data = checked(document).model_dump(by_alias=True, exclude_none=True)
    data = _ordered(data, document.data)
    if not isinstance(layout := data["layout"], str):
        say = lambda value: str(value).lower() if isinstance(value, bool) else value
        data["layout"] = " ".join(f"{key}={say(value)}" for key, value in layout.items())
    if not data["cases"]:
        del data["cases"]
    return data


def _ordered(data: dict[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with the keys that were written first, in their order."""
    order = [*(key for key in written if key in data), *(key for key in data if key not in written)]
    both = lambda key: isinstance(data[key], dict) and isinstance(written.get(key), Mapping)
    return {key: _ordered(data[key], written[key]) if both(key) else data[key] for key in order}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, for editors.

    Examples:
        >>> json_schema()["title"]
        'Scenario'
    """
    from fabric.scenario._schema import Scenario as Shape

    schema = Shape.model_json_schema(by_alias=True)
    refers = {"type": "string", "description": "Path or name of the scenario that is underneath."}
    schema["$defs"]["Reference"] = {
        "description": "The block of another scenario; further keys override its own.",
        "type": "object", "required": ["from"], "properties": {"from": refers},
    }  # fmt: skip
    own = schema["properties"]
    blocks = {key: {"anyOf": [own[key], {"$ref": "#/$defs/Reference"}]} for key in BLOCKS}
    # Blocks on top of another scenario may be as short as one key.
    schema["properties"] = own | {key: {} for key in BLOCKS} | {"from": refers}
    schema["if"] = {"required": ["from"]}
    schema["else"] = {"properties": blocks, "required": schema["required"]}
    schema["required"] = ["schema"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
