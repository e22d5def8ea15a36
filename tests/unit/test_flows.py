"""What `Flows` promises."""

import numpy as np
import pytest

import fabric as fb


def test_flows_say_every_fault_at_once():
    with pytest.raises(fb.ModelError) as caught:
        fb.Flows([0, 1], [1, 0], size=[-1.0, 2.0], weight=[1.0, 0.0])
    assert "size in bytes of 0 or more" in str(caught.value)
    assert "weight of more than 0" in str(caught.value)
    with pytest.raises(fb.ModelError, match=r"got 2 values of `src`, but `dst` has 1"):
        fb.Flows([0, 1], [1])


def test_flows_are_never_rounded_wrapped_or_reshaped():
    for ends in (np.array([0.5]), np.array([2**32]), np.array([True]), np.array(["0"])):
        with pytest.raises(
            fb.ModelError, match=r"`Flows\(src=...\)` needs whole numbers of 32 bits"
        ):
            fb.Flows(ends, [1])
    with pytest.raises(fb.ModelError, match=r"needs a list of numbers, but got .* shape \(1, 1\)"):
        fb.Flows(np.array([[0]]), [1])
    with pytest.raises(fb.ModelError, match=r"`Flows\(weight=...\)` .* shape \(1, 1\)"):
        fb.Flows([0], [1], weight=np.array([[1.0]]))
    assert fb.Flows(np.array([0.0]), np.array([1], np.uint8)).src.dtype == np.int32


def test_no_flow_is_a_table_without_rows():
    flows = fb.Flows([], [])
    assert (flows.n_flows, flows.src.dtype, flows.size.shape) == (0, np.int32, (0,))


def test_a_fault_names_the_flow_and_prints_a_plain_number():
    with pytest.raises(fb.ModelError, match=r"at flows '2' \(the first is -1.0\)"):
        fb.Flows([0, 1, 2], [1, 2, 0], size=[np.nan, 1.0, -1.0])


def test_flows_keep_their_own_copy():
    size = np.array([1.0])
    flows = fb.Flows([0], [1], size=size)
    size[0] = 2.0
    assert flows.size.tolist() == [1.0]
