"""What `network.join` promises, one test per promise."""

import numpy as np
import pytest

from fabric import Flows, ModelError, Routes
from fabric.network import join
from tests.unit._routing_oracles import usage

ONE = Routes.from_paths([[0], [1, 2], [], [3, 3]], n_links=4, usage=[[1], [1, 0.5], [], [1, 1]])
TWO = Routes.from_bundles(
    [0, 0, 1], [0, 1, 1], [1.0, 2.0, 1.0], [0, 0, 1], [0, 1, 2], [0.25, 0.75, 1.0],
    n_flows=2, n_bundles=2, n_links=4,
)  # fmt: skip


@pytest.mark.parametrize("legs", [[ONE, ONE], [ONE, TWO], [TWO, ONE, TWO]], ids=["1", "12", "212"])
def test_loads_are_the_sums_of_the_legs(legs):
    rng = np.random.default_rng(len(legs))
    rows = [rng.integers(-1, routes.n_flows, 6) for routes in legs]
    got = usage(join(Flows(range(6), range(1, 7)), list(zip(legs, rows, strict=True))))
    want = np.zeros_like(got)
    for routes, row in zip(legs, rows, strict=True):
        want += np.where((row >= 0)[:, None], usage(routes)[row], 0)
    np.testing.assert_allclose(got, want, rtol=1e-15)


def test_hops_run_from_the_first_leg_to_the_last():
    routes = join(Flows([0, 1], [1, 0]), [(ONE, [1, 0]), (ONE, [3, -1])])
    assert routes.hop_flow.tolist() == [0, 0, 0, 0, 1]
    assert routes.hop_bundle.tolist() == [1, 2, 3, 3, 0]
    assert routes.hop_use.tolist() == [1.0, 0.5, 1.0, 1.0, 1.0]


def test_one_level_legs_stay_on_one_level():
    assert join(Flows([0], [1]), [(ONE, [0]), (ONE, [1])]).n_parts == 0
    assert join(Flows([0], [1]), [(ONE, [0]), (TWO, [1])]).n_parts == 3 + 4


def test_a_leg_that_occurs_twice_brings_its_bundles_once():
    routes = join(Flows([0], [1]), [(TWO, [0]), (ONE, [0]), (TWO, [1])])
    assert routes.n_bundles == TWO.n_bundles + ONE.n_links


def test_padding_of_a_leg_is_left_out():
    padded = Routes.from_paths([[0], [1, 2]], n_links=4, pad_to=9)
    assert join(Flows([0], [1]), [(padded, [1])]).hop_bundle.tolist() == [1, 2]


def test_queue_pairs_share_weight_and_cap_of_their_flow():
    flows = Flows([0, 1], [1, 0], weight=[1.0, 3.0], cap=[8.0, np.inf])
    routes = join(flows, [(ONE, [0, 1, 1, 1])], queue_pairs=2)
    assert routes.flow_of.tolist() == [0, 0, 1, 1]
    assert routes.weight.tolist() == [0.5, 0.5, 1.5, 1.5]
    assert routes.cap.tolist() == [4.0, 4.0, np.inf, np.inf]
    assert routes.n_pairs == 2


def test_all_faults_are_said_at_once():
    other = Routes.from_paths([[0]], n_links=9)
    with pytest.raises(ModelError) as error:
        join(Flows([0], [1]), [(ONE, [0, 1]), (other, [7])])
    said = str(error.value)
    assert "they count 4, 9 links" in said
    assert "Leg 0 of `join` has 2 rows for 1 of the result" in said
    assert "Leg 1 of `join` needs rows from -1 to 0, but 1 are not; the first is 7" in said
    with pytest.raises(ModelError, match="needs one leg at least"):
        join(Flows([0], [1]), [])
