"""`read_flows`: a CSV file with a row per flow."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fabric._errors import ModelError, raise_faults, some
from fabric.network import Flows, Network
from fabric.traffic._columns import REQUIRED, find_columns, to_numbers, unique
from fabric.traffic._names import at_line, name_faults, numbers_of
from fabric.traffic._table import read_columns

_EMPTY = {"size": None, "start": 0.0, "weight": 1.0, "cap": np.inf}


def read_flows(
    path: str | Path, network: Network, *, columns: Mapping[str, str | None] | None = None
) -> Flows:
    r"""Return the flows of a CSV file, one per row, its first line naming the columns.

    | column | also called | unit of a bare number | when left out |
    | --- | --- | --- | --- |
    | `src` | `source`, `from`, `sender` | a name or id of the network | an error |
    | `dst` | `dest`, `destination`, `to`, `target`, `receiver` | a name or id | an error |
    | `size` | `bytes`, `volume`, `demand` | bytes | NaN: not stated |
    | `start` | `start_time`, `arrival` | seconds | 0 |
    | `weight` | | none | 1 |
    | `cap` | `rate_cap`, `max_rate` | byte/s | infinite |

    A column may have a unit, `size_MB` or `start [us]`, and a cell its own, `1GiB`. An empty cell
    counts as left out, except that a column of sizes needs one in every row. Comma, semicolon and
    tab separate.

    Args:
        path: The file, UTF-8 text.
        network: Whose hosts send and receive.
        columns: Header of the file to one of the names above, `{"Volume": "size_MB"}`; None leaves
            the column out. A column that is neither known nor mapped is an error.

    Raises:
        ModelError: If the file cannot be read or holds no flow, a column is missing or unknown, a
            name is no host, a host sends to itself, or a number is wrong; all faults at once.

    Examples:
        >>> import tempfile, fabric as fb
        >>> net = fb.topologies.single_switch(hosts=2)
        >>> path = Path(tempfile.mkdtemp(), "flows.csv")
        >>> _ = path.write_text("src,dst,bytes,start_us\nhost0,host1,1GB,2\n")
        >>> flows = read_flows(path, net)
        >>> flows.size.tolist(), flows.start.tolist()
        ([1000000000.0], [2e-06])
    """
    table = read_columns(path)
    where, header, lines, uneven = f"'{table.name}'", table.header, table.lines, table.uneven
    found, faults = find_columns(where, header, columns)
    if uneven:
        faults.append(
            f"{where} has {len(uneven):,} rows without one cell for each of the {len(header)} "
            f"columns: {some(uneven, name=lambda i: f'line {lines[i]:,}')}."
        )
    if not lines:
        faults.append(f"{where} has a first line and no flow below it.")
    if faults and (uneven or not lines or any(field not in found for field in REQUIRED)):
        raise ModelError("\n".join(faults))

    ends = [table.cells[found[field].position] for field in ("src", "dst")]
    names = unique(ends)
    numbers = numbers_of(network, names)
    faults += name_faults(where, network, names, numbers)
    number = dict(zip(names, numbers.tolist(), strict=True))
    src, dst = (np.fromiter(map(number.__getitem__, end), np.int32, len(lines)) for end in ends)
    own = np.flatnonzero((src == dst) & (src >= 0))
    if len(own):
        at = lambda row: at_line(ends[0][row], lines[row])
        faults.append(
            f"{where} has {len(own):,} flows from a host to itself: "
            f"{some(own.tolist(), name=at)}. Leave them out."
        )
    values = {}
    for field, empty in _EMPTY.items():
        if field in found:
            column = found[field]
            values[field], wrong = to_numbers(
                where, column, table.cells[column.position], lines, empty
            )
            faults += wrong
    raise_faults(faults)
    return Flows(src, dst, **values)
