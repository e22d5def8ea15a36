"""Demand matrices: an array, an NPY file or a CSV file; rows send and columns receive."""

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray
from fabric._units import parse_size
from fabric.network import Flows, Network
from fabric.traffic._hosts import endpoints
from fabric.traffic._names import at_line, name_faults, numbers_of
from fabric.traffic._table import Table, is_number, read_bytes, read_table

Hosts = Network | AnyArray | Sequence[int]


def matrix(
    hosts: Hosts, array: AnyArray | Sequence[Sequence[float]], unit: str | None = None
) -> Flows:
    """Return a flow for every entry of a demand matrix that is not 0, ordered by sender.

    Args:
        hosts: A network, whose hosts are meant, in order; or (hosts,), node numbers.
        array: (hosts, hosts), entry [i, j] is what host i sends to host j, in bytes.
        unit: Of the entries, for example "MB". Default: bytes.

    Raises:
        ModelError: If the array is not (hosts, hosts), an entry is negative, NaN or infinite, a
            host sends to itself, or there is no demand at all; all faults at once.

    Examples:
        >>> flows = matrix([7, 8], [[0, 5], [0, 0]], unit="MB")
        >>> flows.src.tolist(), flows.dst.tolist(), flows.size.tolist()
        ([7], [8], [5000000.0])
    """
    try:
        values = np.asarray(array, np.float64)
    except (TypeError, ValueError) as error:
        message = f"`matrix(array)` needs a square array of numbers, but {error}."
        raise ModelError(message) from error
    nodes, network = _nodes("matrix", hosts)
    return _flows("`matrix(array)`", values, nodes, network, unit)


def read_matrix(path: str | Path, hosts: Hosts, unit: str | None = None) -> Flows:
    r"""Return the flows of a demand matrix in an NPY or CSV file, told apart by content.

    A CSV file may have host names in its first row, its first column or both. They say which host
    a row and a column is, in any order, and may leave hosts out.

    Args:
        path: The file.
        hosts: A network, whose hosts are meant, in order; or (hosts,), node numbers. A file with
            names needs the network.
        unit: Of the entries, for example "MB". Default: bytes.

    Raises:
        ModelError: If the file cannot be read, a cell is no number, a name is no host, or as in
            `matrix`; all faults at once.

    Examples:
        >>> import tempfile, fabric as fb
        >>> net = fb.topologies.single_switch(hosts=2)
        >>> path = Path(tempfile.mkdtemp(), "demand.csv")
        >>> _ = path.write_text(",host1,host0\nhost0,25,0\nhost1,0,0\n")
        >>> flows = read_matrix(path, net, unit="GB")
        >>> flows.src.tolist(), flows.dst.tolist(), flows.size.tolist()
        ([0], [1], [25000000000.0])
    """
    data, where = read_bytes(path), f"'{Path(path).name}'"
    nodes, network = _nodes("read_matrix", hosts)
    if not data.startswith(b"\x93NUMPY"):
        values, nodes = _from_table(read_table(path), nodes, network)
        return _flows(where, values, nodes, network, unit)
    try:
        values = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        message = f"{where} is no NPY file of numbers: {error}."
        raise ModelError(message) from error
    if values.dtype.kind not in "iuf":
        message = f"{where} holds {values.dtype}, not real numbers. Save it as float64."
        raise ModelError(message)
    return _flows(where, values.astype(np.float64), nodes, network, unit)


def _nodes(where: str, hosts: Hosts) -> tuple[Int[np.ndarray, " hosts"], Network | None]:
    if isinstance(hosts, Network):
        return endpoints(where, hosts.hosts), hosts
    return endpoints(where, hosts), None


def _flows(
    where: str,
    values: np.ndarray,
    nodes: Int[np.ndarray, " hosts"],
    network: Network | None,
    unit: str | None,
) -> Flows:
    n = len(nodes)
    scale = 1.0 if unit is None else parse_size(f"1{unit}", "unit")
    if values.shape != (n, n):
        message = (
            f"{where} has shape {values.shape}, but {n:,} hosts need {(n, n)}. Give a row and a "
            f"column for every host, or a CSV file that names the hosts it is about."
        )
        raise ModelError(message)

    def name(host: int | np.integer) -> str:
        return network.labels.names[int(nodes[host])] if network else f"node {nodes[host]}"

    bad = np.argwhere(~(np.isfinite(values) & (values >= 0)))
    own = np.flatnonzero(np.diagonal(values))
    faults = []
    if len(bad):
        faults.append(
            f"{where} needs finite bytes of 0 or more, but {len(bad):,} of {values.size:,} entries "
            f"are not: {some(bad, name=lambda pair: '->'.join(map(name, pair)))} (the "
            f"first is {values[tuple(bad[0])]:g})."
        )
    if len(own):
        faults.append(
            f"{where} has {len(own):,} hosts that send to themselves: "
            f"{some(own, name=name)}. Set the diagonal to 0."
        )
    if not np.any(values):
        faults.append(f"{where} is 0 everywhere, so there is no flow.")
    raise_faults(faults)
    src, dst = np.nonzero(values)
    return Flows(nodes[src], nodes[dst], size=values[src, dst] * scale)


def _from_table(
    table: Table, nodes: Int[np.ndarray, " hosts"], network: Network | None
) -> tuple[Float[np.ndarray, "rows columns"], Int[np.ndarray, " senders"]]:
    """Return the numbers of a CSV matrix, and the hosts that its names say they belong to."""
    cells, lines = table.rows, table.lines
    corner = not cells[0][0]
    header = corner or _mostly_names(cells[0])
    below = cells[header:]
    index = corner or _mostly_names([row[0] for row in below])
    # A header may leave out the corner cell above a column of names.
    short = header and index and bool(below) and len(cells[0]) == len(below[0]) - 1
    columns = cells[0][0 if short or not index else 1 :] if header else None
    rows = [row[0] for row in below] if index else None
    values, faults = _numbers(table, [row[index:] for row in below], lines[header:])
    if network is None and (columns or rows):
        faults.append(
            f"'{table.name}' has host names. Pass the network, `read_matrix(path, network)`."
        )
    raise_faults(faults)
    if network is None or not (columns or rows):
        return values, nodes
    return _named(f"'{table.name}'", network, values, columns, rows)


def _named(
    where: str,
    network: Network,
    values: Float[np.ndarray, "rows columns"],
    columns: list[str] | None,
    rows: list[str] | None,
) -> tuple[Float[np.ndarray, "rows columns"], Int[np.ndarray, " senders"]]:
    by_row, by_column = rows or columns or [], columns or rows or []
    faults = []
    for what, names in (("row", by_row), ("column", by_column)):
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            faults.append(f"{where} names more than one {what} each {some(twice)}.")
    lone = sorted(set(by_row) ^ set(by_column))
    if lone:
        faults.append(
            f"{where} needs a row and a column for every host it names, but {len(lone):,} have "
            f"only one of them: {some(lone)}."
        )
    numbers = numbers_of(network, by_row)
    faults += name_faults(where, network, by_row, numbers)
    if values.shape != (len(by_row), len(by_column)):
        faults.append(
            f"{where} has {values.shape[0]:,} rows and {values.shape[1]:,} columns of numbers, but "
            f"names {len(by_row):,} rows and {len(by_column):,} columns."
        )
    raise_faults(faults)
    place = {name: i for i, name in enumerate(by_column)}
    return values[:, [place[name] for name in by_row]], numbers


def _mostly_names(cells: Sequence[str]) -> bool:
    """Most are no number: one typing error among numbers does not make a row of names."""
    return 2 * sum(is_number(cell) for cell in cells) < len(cells)


def _numbers(
    table: Table, body: list[list[str]], lines: list[int]
) -> tuple[Float[np.ndarray, "rows columns"], list[str]]:
    width = len(body[0]) if body else 0
    uneven = [i for i, row in enumerate(body) if len(row) != width]
    bad = [
        (line, cell)
        for row, line in zip(body, lines, strict=True)
        if not _all_numbers(row)
        for cell in row
        if not is_number(cell)
    ]
    faults = []
    if uneven:
        faults.append(
            f"'{table.name}' has {len(uneven):,} rows that are not as long as the first ({width:,} "
            f"numbers): {some(uneven, name=lambda i: f'line {lines[i]:,}')}."
        )
    if bad:
        faults.append(
            f"'{table.name}' has {len(bad):,} cells that are no number: "
            f"{some(bad, name=lambda at: at_line(at[1], at[0]))}. Write 0 where "
            f"nothing is sent."
        )
    if not body:
        faults.append(f"'{table.name}' has a first row of names and nothing below it.")
    return (np.zeros((0, 0)) if faults else np.array([[*map(float, r)] for r in body])), faults


def _all_numbers(row: list[str]) -> bool:
    try:
        list(map(float, row))
    except ValueError:
        return False
    return True
