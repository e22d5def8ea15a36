"""`slim_fly`: routers at most two cables apart, on the graphs of McKay, Miller and Siran."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, wholes
from fabric.topologies._grid import annotated
from fabric.topologies._plan import afford, describe
from fabric.topologies._sizes import Sizes


def slim_fly(
    q: int,
    *,
    hosts_per_router: int | None = None,
    capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return a Slim Fly: 2 q^2 routers, every two of them at most two cables apart.

    For a prime power q = 4 w + d with d of -1, 0 or 1 a router has k = (3 q - d) / 2 cables to
    others, nearly as few as diameter 2 allows. Routers (0, x, y) and (1, m, c) are numbered by
    elements of the field of q elements, with a generator z:

        (0, x, y) - (0, x, y')  where y - y' is in X      (1, m, c) - (1, m, c')  where c - c' in X'
        (0, x, y) - (1, m, c)   where y = m x + c

    X are the even powers of z and X' the odd ones, up to z^(q-2) for d = 1 and z^(q-1) for d = 0;
    for d = -1, X are z^0, z^2, ..., z^(2w-2) and z^(2w-1), z^(2w+1), ..., z^(4w-3), and X' is z
    times that.

    Hosts come first, ordered by router, and are called `router0-3-1-host2`; routers are
    `router0-3-1`. Kinds `host` and `router`; tiers `host` and `network`; tags `part`, `column` and
    `row` (the three numbers of a router) and `router` on both.

    Args:
        q: A prime power of 3 or more.
        hosts_per_router: Default: k / 2, rounded up, the balanced number of the paper.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If `q` is no prime power of 3 or more, or the network would not fit in memory.

    Examples:
        >>> net = slim_fly(5)
        >>> {t: int(net.labels.is_tier(t).sum()) // 2 for t in net.labels.tiers}
        {'host': 200, 'network': 175}

    References:
        M. Besta and T. Hoefler, Slim Fly: A Cost Effective Low-Diameter Network Topology, SC 2014.
        P. R. Hafner, Geometric Realisation of the Graphs of McKay-Miller-Siran, Journal of
        Combinatorial Theory B 90, 2004.
    """
    size, hosts = _checked(q, hosts_per_router)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    what = describe(
        slim_fly, q=size.q, hosts_per_router=hosts_per_router, capacity=capacity, latency=latency
    )
    afford(what, _sizes(size, hosts).n_cables)

    q = size.q
    part, column, row = np.indices((2, q, q))
    tags = {"part": part, "column": column, "row": row}
    tags["router"] = np.arange(2 * q * q).reshape(2, q, q)
    plan = Blueprint()
    host = plan.nodes(
        "host", "router{}-{}-{}-host{}", (2, q, q, hosts),
        **{name: tag[..., None] for name, tag in tags.items()},
    )  # fmt: skip
    router = plan.nodes("router", "router{}-{}-{}", (2, q, q), **tags)
    plan.cables("host", host, router[..., None], rate, delay)
    field = Field(size.prime, size.exponent)
    for side, powers in enumerate(_connection_sets(size)):
        to = field.add(field.power[powers][:, None], np.arange(q))
        # Both sets hold with every element its negative: of the two cables one is enough.
        step, once = np.nonzero(to > np.arange(q))
        ends = router[side][:, once], router[side][:, to[step, once]]
        plan.cables("network", *ends, rate, delay)
    x, m, c = np.indices((q, q, q))
    y = field.add(field.multiply(m, x), c)
    plan.cables("network", router[0, x, y], router[1, m, c], rate, delay)
    return annotated(plan.network(what), q=str(q))


def sizes_of_slim_fly(q: int, *, hosts_per_router: int | None = None) -> Sizes:
    """Return what `slim_fly` would have.

    Examples:
        >>> sizes_of_slim_fly(19).nodes
        {'host': 10830, 'router': 722}
    """
    return _sizes(*_checked(q, hosts_per_router))


class Field:
    """The finite field of p^n elements, numbered by their digits in base p.

    Attributes:
        q: Number of elements.
        power: (q - 1,), the powers of a generator from the 0th.

    Examples:
        >>> field = Field(2, 2)
        >>> every = np.arange(4)
        >>> field.add(every, every[::-1]).tolist(), field.multiply(every, every).tolist()
        ([3, 3, 3, 3], [0, 1, 3, 2])
    """

    def __init__(self, p: int, n: int):
        self.q = p**n
        self._p, self._n = p, n
        self.power = _powers(p, n)
        self._log = np.zeros(self.q, np.int64)
        self._log[self.power] = np.arange(self.q - 1)

    def add(self, a: np.ndarray, b: np.ndarray) -> Int[np.ndarray, "..."]:
        """Return the sum of elements: digit by digit, modulo p."""
        place = self._p ** np.arange(self._n)
        digits = a[..., None] // place + b[..., None] // place
        return (digits % self._p) @ place

    def multiply(self, a: np.ndarray, b: np.ndarray) -> Int[np.ndarray, "..."]:
        """Return the product of elements."""
        product = self.power[(self._log[a] + self._log[b]) % (self.q - 1)]
        return np.where((a == 0) | (b == 0), 0, product)


def _powers(p: int, n: int) -> Int[np.ndarray, " powers"]:
    """Return the powers of x in GF(p)[x] modulo the first polynomial that x generates all with."""
    one = [1] + [0] * (n - 1)
    for tail in itertools.product(range(p), repeat=n):
        # x^n = tail, lowest digit first: multiplying by x shifts the digits and adds the tail.
        element, found = one, []
        for _ in range(p**n - 1):
            found.append(sum(digit * p**i for i, digit in enumerate(element)))
            top, shifted = element[-1], [0, *element[:-1]]
            element = [(low + top * add) % p for low, add in zip(shifted, tail, strict=True)]
            if element == one:
                break
        if len(found) == p**n - 1 and element == one:
            return np.array(found)
    message = f"no primitive polynomial of degree {n} over {p}"
    raise AssertionError(message)


@dataclass(frozen=True)
class _Q:
    """A prime power q = prime^exponent = 4 w + delta."""

    q: int
    prime: int
    exponent: int

    @property
    def delta(self) -> int:
        """-1, 0 or 1."""
        return (self.q + 1) % 4 - 1

    @property
    def degree(self) -> int:
        """Cables of a router to other routers."""
        return (3 * self.q - self.delta) // 2


def _prime_power(q: int) -> _Q | None:
    """Return q as a power of a prime, or None where it is none."""
    prime = next((p for p in range(2, math.isqrt(q) + 1) if q % p == 0), q)
    exponent = round(math.log(q, prime))
    return _Q(q, prime, exponent) if prime**exponent == q else None


def _checked(q: int, hosts_per_router: int | None) -> tuple[_Q, int]:
    """Return q taken apart and the hosts of a router, or raise."""
    (q,) = wholes(least=3, q=q)
    size = _prime_power(q)
    if size is None:
        around = (range(q - 1, 2, -1), itertools.count(q + 1))
        near = [next((n for n in side if _prime_power(n)), None) for side in around]
        message = (
            f"`slim_fly(q={q})` needs a prime power, for there is no field of {q} elements. Use "
            f"{' or '.join(f'q={n}' for n in near if n)}."
        )
        raise ModelError(message)
    if hosts_per_router is None:
        return size, -(-size.degree // 2)
    return size, wholes(hosts_per_router=hosts_per_router)[0]


def _sizes(size: _Q, hosts: int) -> Sizes:
    routers = 2 * size.q**2
    return Sizes(
        {"host": routers * hosts, "router": routers},
        {"host": routers * hosts, "network": size.q**2 * size.degree},
        {"host": 1, "router": hosts + size.degree},
        hops=3,
    )


def _connection_sets(size: _Q) -> tuple[np.ndarray, np.ndarray]:
    """Return the powers of the generator that make up X and X'."""
    q, w = size.q, (size.q - size.delta) // 4
    if size.delta == -1:
        even = np.r_[np.arange(0, 2 * w - 1, 2), np.arange(2 * w - 1, 4 * w - 2, 2)]
    else:
        even = np.arange(0, q - 1, 2)
    return even, (even + 1) % (q - 1)
