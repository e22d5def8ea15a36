"""What `patched` promises of optical switches, one test per promise."""

import itertools

import numpy as np
import pytest

from fabric.optimize._matchings import patched
from fabric.optimize._rounding import random_circuits

CIRCUITS = random_circuits(np.full(6, 8), ~np.eye(6, dtype=bool), np.random.default_rng(0))


def check_patch(patch, count, ports):
    each = ports // (2 * len(patch))
    np.testing.assert_array_equal(patch.sum(0) + patch.sum(0).T, count)
    assert (patch.sum(2) <= each).all()
    assert (patch.sum(1) <= each).all()
    assert patch.min() >= 0


@pytest.mark.parametrize("switches", [1, 2, 4])
def test_every_switch_has_at_most_its_ports_on_both_sides(switches):
    ports = np.full(6, 8)
    patch = patched(CIRCUITS, ports, switches)
    check_patch(patch, CIRCUITS, ports)


def test_circuits_that_are_set_already_stay_where_they_are():
    ports = np.full(6, 8)
    patch = patched(CIRCUITS, ports, 4)
    np.testing.assert_array_equal(patched(CIRCUITS, ports, 4, patch), patch)


def test_one_exchange_of_ends_rewires_no_more_than_its_two_circuits_when_sides_allow():
    ring = np.roll(np.eye(6, dtype=int), 1, 1)
    count, ports = 2 * (ring + ring.T), np.full(6, 4)
    today = np.stack([ring + 0 * ring, ring])
    check_patch(today, count, ports)
    new = count.copy()
    for a, b, more in ((0, 1, -1), (3, 4, -1), (0, 4, 1), (3, 1, 1)):
        new[a, b] += more
        new[b, a] += more
    patch = patched(new, ports, 2, today)
    check_patch(patch, new, ports)
    assert np.maximum(patch - today, 0).sum() == 2


def test_a_switch_leaves_to_the_others_what_they_have_set():
    # A new pair of cables takes the place of one in the first switch, not of those in the second.
    today = np.array([[[0, 0, 1], [0, 0, 0], [1, 0, 0]], [[0, 1, 0], [0, 0, 1], [1, 0, 0]]])
    count, ports = 2 * (1 - np.eye(3, dtype=int)), np.full(3, 4)
    patch = patched(count, ports, 2, today)
    check_patch(patch, count, ports)
    off = np.flatnonzero(1 - np.eye(3))
    one_switch = []
    for cells in itertools.product((0, 1), repeat=6):
        z = np.zeros(9, int)
        z[off] = cells
        z = z.reshape(3, 3)
        if max(z.sum(0).max(), z.sum(1).max()) <= 1:
            one_switch.append(z)
    tried = [np.stack(two) for two in itertools.product(one_switch, repeat=2)]
    least = min(
        np.maximum(two - today, 0).sum()
        for two in tried
        if (two.sum(0) + two.sum(0).T == count).all()
    )
    assert np.maximum(patch - today, 0).sum() == least


def test_switches_are_set_together_to_keep_what_one_after_another_would_not():
    def switches(draw):
        patch = np.stack([draw.permutation(np.eye(8, dtype=int)) for _ in range(8)])
        patch = patch.reshape(4, 2, 8, 8).sum(1)
        patch[:, np.arange(8), np.arange(8)] = 0
        return patch

    today, other = (switches(np.random.default_rng(seed)) for seed in (0, 1))
    count = other.sum(0) + other.sum(0).T
    patch = patched(count, np.full(8, 16), 4, today)
    check_patch(patch, count, np.full(8, 16))
    assert np.maximum(patch - today, 0).sum() == 23  # proved; 26 one after another
