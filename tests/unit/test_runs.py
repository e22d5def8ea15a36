"""What `runs` promises: progress, checkpoints, fingerprints and histories."""

import io
import os
import subprocess
import sys
import time

import jax
import numpy as np
import optax
import pytest

import fabric as fb
from fabric import runs
from fabric._errors import ModelError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def clocked(monkeypatch, step):
    ticks = iter(np.arange(0, 1e6, step))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))


def told(stream, monkeypatch, asked=None):
    monkeypatch.delenv("FABRIC_PROGRESS", raising=False)
    if asked is not None:
        monkeypatch.setenv("FABRIC_PROGRESS", asked)
    clocked(monkeypatch, 1.0)
    with runs.Progress(100, what="steps", stream=stream) as progress:
        for done in range(1, 21):
            progress.update(done, objective=1.02, bound=1.0)
    return stream.getvalue()


def test_a_terminal_sees_rate_time_to_go_objective_bound_and_gap(monkeypatch):
    said = told(Terminal(), monkeypatch)
    # One step a second; the first update starts the clock.
    assert "20 of 100 steps, 1 a second, 80 s to go, objective 1.02, bound 1, gap 2.00%" in said
    assert said.endswith("\r\x1b[K")
    assert "\n" not in said


def test_a_pipe_is_told_nothing_unless_asked(monkeypatch):
    assert told(io.StringIO(), monkeypatch) == ""
    lines = told(io.StringIO(), monkeypatch, "1").splitlines()
    assert 2 <= len(lines) <= 4
    assert all(" of 100 steps, " in line for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_a_terminal_can_be_silenced(monkeypatch):
    assert told(Terminal(), monkeypatch, "0") == ""


def test_work_of_unknown_length_has_no_time_to_go(monkeypatch):
    clocked(monkeypatch, 1.0)
    stream = Terminal()
    progress = runs.Progress(what="rows", stream=stream)
    for done in range(5):
        progress.update(1000 * done)
    assert "4,000 rows" in stream.getvalue()
    assert "to go" not in stream.getvalue()


STATE = {
    "step": 7, "loss": 0.1 + 0.2, "best": float("inf"), "name": "a b", "none": None, "stop": False,
    "key": np.array([1, 2**31], np.uint32), "w": np.arange(6.0).reshape(2, 3),
    "half": np.float32([0.1]), "empty": np.zeros((0, 4)), "single": np.array(3.0),
}  # fmt: skip


def test_a_state_comes_back_as_it_was(tmp_path):
    kept = runs.Checkpoint(tmp_path / "c", "f")
    assert kept.load() is None
    kept.save(STATE)
    back = runs.Checkpoint(tmp_path / "c", "f").load()
    assert back is not None
    assert set(back) == set(STATE)
    for name, value in STATE.items():
        assert type(back[name]) is type(value)
        np.testing.assert_array_equal(back[name], value)
        assert getattr(back[name], "dtype", None) == getattr(value, "dtype", None)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_the_state_of_an_optimiser_comes_back_as_it_was(tmp_path):
    rule = optax.adam(optax.cosine_decay_schedule(0.1, 10))
    start = {"z": np.ones(3), "y": np.zeros(2)}
    with jax.numpy_dtype_promotion("standard"):  # optax mixes whole numbers and floats
        _, state = rule.update(start, rule.init(start), start)
        kept = runs.Checkpoint(tmp_path / "c", "f")
        kept.save(runs.packed("adam", state))
        saved = kept.load()
        assert saved is not None
        back = runs.unpacked("adam", saved, rule.init(start))
        ours, _ = rule.update(start, back, start)
        theirs, _ = rule.update(start, state, start)
    np.testing.assert_array_equal(ours["z"], theirs["z"])


def test_a_kill_while_saving_leaves_the_old_state(tmp_path):
    kept = runs.Checkpoint(tmp_path / "c", "f")
    kept.save({"step": 1})
    code = (
        "import os, sys\nimport numpy as np\nfrom fabric import runs\n"
        "os.replace = lambda *_: os._exit(9)\n"
        "runs.Checkpoint(sys.argv[1], 'f').save({'step': 2, 'w': np.ones(10)})\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "c")], check=False)
    assert done.returncode == 9
    assert kept.load() == {"step": 1}


def test_a_failed_save_leaves_no_file_behind(tmp_path, monkeypatch):
    kept = runs.Checkpoint(tmp_path / "c", "f")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ModelError, match="cannot be written: No space left"):
        kept.save({"step": 1})
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_problem_is_refused(tmp_path):
    runs.Checkpoint(tmp_path / "c", "f" * 64).save({"step": 1})
    with pytest.raises(ModelError, match=r"another problem.*ffffffffffff.*eeeeeeeeeeee"):
        runs.Checkpoint(tmp_path / "c", "e" * 64).load()


def test_what_is_no_checkpoint_is_refused(tmp_path):
    for content in (b"", b"text", b"PK\x03\x04"):
        (tmp_path / "c").write_bytes(content)
        with pytest.raises(ModelError, match="no checkpoint that can be read"):
            runs.Checkpoint(tmp_path / "c", "f").load()
    runs.Checkpoint(tmp_path / "d", "f").save({"w": np.ones(100)})
    whole = (tmp_path / "d").read_bytes()
    (tmp_path / "d").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="no checkpoint that can be read"):
        runs.Checkpoint(tmp_path / "d", "f").load()


def test_a_folder_that_is_not_there_is_refused_before_the_work(tmp_path):
    with pytest.raises(ModelError, match="needs a folder that exists"):
        runs.Checkpoint(tmp_path / "none" / "c", "f")


def test_a_save_is_due_after_its_pause(tmp_path):
    assert runs.Checkpoint(tmp_path / "c", "f", every=0).due
    kept = runs.Checkpoint(tmp_path / "c", "f", every=1e6)
    assert not kept.due


NET = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param([1, 2], [1.0, 2.0], id="kinds-of-numbers"),
        pytest.param("1", 1, id="text"),
        pytest.param(True, 1, id="truth"),
        pytest.param(0.1 + 0.2, 0.3, id="last-bit"),
        pytest.param([[1], 2], [[1, 2]], id="nesting"),
        pytest.param(np.zeros((2, 3)), np.zeros((3, 2)), id="shape"),
        pytest.param(np.zeros(2, np.float32), np.zeros(2), id="precision"),
        pytest.param({"a": 1}, {"b": 1}, id="keys"),
        pytest.param(NET, NET.without(links=[0]), id="dead-link"),
        pytest.param(NET, NET.degraded(links=[0], factor=0.5), id="capacity"),
        pytest.param(fb.Flows([0], [1]), fb.Flows([0], [1], weight=2.0), id="flows"),
    ],
)
def test_a_fingerprint_tells_apart(one, other):
    assert runs.fingerprint(one) != runs.fingerprint(other)


def test_a_fingerprint_is_the_same_for_the_same():
    again = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
    assert runs.fingerprint(NET, {"b": 1, "a": {3, 1}}) == runs.fingerprint(
        again, {"a": {1, 3}, "b": 1}
    )
    assert runs.fingerprint(np.float64(2.5)) == runs.fingerprint(2.5)


def test_a_fingerprint_of_what_has_no_value_is_refused():
    with pytest.raises(ModelError, match="got function"):
        runs.fingerprint([lambda x: x])


def test_a_history_is_drawn_and_told(tmp_path):
    points = [(0, 2.0, -np.inf), (5, 1.2, 1.0), (9, 1.1, 1.0), (10, 1.0, 1.0)]
    history = runs.History.of(points)
    np.testing.assert_allclose(history.gap, [np.inf, 0.2, 0.1, 0.0], rtol=1e-12)
    assert history.as_dict()["steps"] == [0, 5, 9, 10]
    history.plot(tmp_path / "c.svg", title="routing", unit="utilisation")
    assert b"<svg" in (tmp_path / "c.svg").read_bytes()


def test_the_gap_of_a_maximum_is_read_the_other_way_round():
    np.testing.assert_allclose(runs.History.of([(0, 0.9, 1.0)]).gap, 1 / 9, rtol=1e-12)
