"""`fabric(...)` runs one command line in this process, as the installed program would."""

import json
from typing import Any, NamedTuple

import pytest

from fabric.cli import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        assert self.code == 0, self.err
        return self.out.splitlines()


@pytest.fixture
def fabric(capsys):
    def run(*args: object) -> Ran:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def refused(fabric):
    """Run a command line that must fail, and return its one message."""

    def run(*args: object, code: int = 2) -> str:
        ran = fabric(*args)
        assert ran.code == code, ran
        assert ran.out == ""
        assert ran.err.startswith("error: ")
        assert ran.err.count("error: ") == 1
        assert "Traceback" not in ran.err
        return ran.err

    return run


@pytest.fixture(scope="session")
def dump(shared):
    return shared / "samples" / "topology" / "ib" / "ndr_40sw_582ca.ibnetdiscover.gz"
