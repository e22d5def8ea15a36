"""A fabric in the InfiniBand simulator, routed by OpenSM, and what the real tools print of it."""

import contextlib
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabric import readers
from fabric.network import Network

TOOLS = ("ibsim", "ibsim-run", "opensm", "ibnetdiscover", "dump_fts", "ibroute", "ibtracert")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"
MISSING = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
needs_tools = pytest.mark.skipif(
    bool(MISSING), reason=f"needs {', '.join(MISSING)} (Debian: `make ib-tools`)"
)

# Without the tests that started it, it would wait for ever; and room for large fabrics.
_SIMULATOR = (
    "timeout", "-k", "5", "300",
    "ibsim", "-s", "-N", "4000", "-S", "1000", "-P", "80000", "-L", "8000",
)  # fmt: skip


@dataclass(frozen=True)
class Subnet:
    """A running simulation.

    Attributes:
        folder: Where the simulator keeps its sockets, and OpenSM its dumps.
        host: Id of the end node that the tools run on.
        roots: GUIDs of the switches at the top, from where up/down routing counts.
        env: Environment of the tools.
    """

    folder: Path
    host: str
    roots: list[str]
    env: dict[str, str]

    def run(self, *command: str, check: bool = True) -> str:
        """Return what a tool prints that runs on the host."""
        done = subprocess.run(
            ["ibsim-run", *command],
            cwd=self.folder, env=self.env | {"SIM_HOST": self.host},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def route(self, engine: str, lmc: int = 0) -> None:
        """Let OpenSM route the subnet once, by this engine and not by one it falls back to."""
        log, roots = self.folder / "osm.log", self.folder / "roots"
        log.unlink(missing_ok=True)
        roots.write_text("".join(f"0x{guid}\n" for guid in self.roots))
        options = ["-a", str(roots)] if engine == "updn" else []
        self.run(
            "opensm", "-o", "-R", engine, "-l", str(lmc), "-D", "0x43", "-f", str(log), *options
        )
        used = re.findall(r"(\w+) tables configured on all switches", log.read_text())
        assert used == [engine], used

    def trace(self, src: int, dst: int) -> list[tuple[str, int]]:
        """Return (GUID of the node, port) of every port that `ibtracert` sees a packet leave by."""
        printed = self.run("ibtracert", "-n", str(src), str(dst))
        at = re.findall(r"^From \{0x(\w+)\}", printed, re.MULTILINE)
        hops = re.findall(r"^\[(\d+)\] -> \{0x(\w+)\}", printed, re.MULTILINE)
        nodes = [*at, *(guid for _, guid in hops)]
        return [(node, int(port)) for node, (port, _) in zip(nodes, hops, strict=False)]


@contextlib.contextmanager
def simulated(network: Network, folder: Path) -> Iterator[Subnet]:
    """Run a network in the simulator; its sockets and files are in `folder`."""
    path = readers.write_ibnetdiscover(network, folder / "fabric.ibnetdiscover")
    written = readers.read(path).network
    labels = written.labels
    assert labels.ids is not None
    top = labels.is_kind("core" if "core" in labels.present_kinds else "spine").nonzero()[0]
    env = {
        "PATH": PATH, "OSM_TMP_DIR": str(folder), "OSM_CACHE_DIR": str(folder),
        # A name of its own, so that simulations side by side do not meet.
        "IBSIM_SOCKNAME": f"fabric-{uuid.uuid4().hex[:12]}",
    }  # fmt: skip
    host, roots = labels.ids[int(written.hosts[0])], [labels.ids[node][2:] for node in top]
    simulator = subprocess.Popen(
        [*_SIMULATOR, path.name],
        cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert simulator.stdout is not None
        # The prompt follows the start of the subnet; the limits are the last lines before it.
        while "MaxMcastCap" not in (line := simulator.stdout.readline()):
            assert line, "ibsim refused the dump"
        yield Subnet(folder, host, roots, env)
    finally:
        try:
            simulator.communicate("quit\n", timeout=20)
        except subprocess.TimeoutExpired:
            simulator.terminate()
            simulator.communicate()
