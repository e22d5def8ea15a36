"""What `runs` promises: progress, checkpoints, fingerprints and histories."""

import io
import json
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


def test_histories_can_be_compared_and_be_keys():
    one, other = (runs.History.of([(0, 1.5, 1.0), (10, 1.1, 1.0)]) for _ in range(2))
    assert one == one
    assert one != other
    assert len({one, other}) == 2


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
    "scalar": np.float32(0.1), "count": np.int64(2**53 + 1),
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
    assert len(list(tmp_path.iterdir())) == 2
    assert kept.load() == {"step": 1}
    # What the killed writer left does not pile up.
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


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


def test_a_damaged_byte_is_noticed_or_harmless(tmp_path):
    kept = runs.Checkpoint(tmp_path / "c", "f" * 8)
    state = {"step": 7, "w": np.arange(12.0).reshape(3, 4), "s": np.array(["a", "b"])}
    kept.save(state)
    whole = (tmp_path / "c").read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        (tmp_path / "c").write_bytes(damaged)
        try:
            back = kept.load()
        except ModelError:
            continue
        assert back is not None
        assert back["step"] == 7
        for name in ("w", "s"):
            np.testing.assert_array_equal(back[name], state[name])
            assert back[name].dtype == state[name].dtype


def test_a_folder_that_is_not_there_is_refused_before_the_work(tmp_path):
    with pytest.raises(ModelError, match="needs a folder that exists"):
        runs.Checkpoint(tmp_path / "none" / "c", "f")
    with pytest.raises(ModelError, match="needs a file, but this is a folder"):
        runs.Checkpoint(tmp_path, "f")


def test_a_checkpoint_behind_a_link_stays_there(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "disk" / "real")
    runs.Checkpoint(tmp_path / "c", "f").save({"step": 1})
    assert (tmp_path / "c").is_symlink()
    assert runs.Checkpoint(tmp_path / "disk" / "real", "f").load() == {"step": 1}


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
        pytest.param(np.array(3.0), np.array([3.0]), id="no-dimension"),
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


def test_a_bound_that_is_not_there_yet_is_not_said(monkeypatch):
    clocked(monkeypatch, 1.0)
    stream = Terminal()
    progress = runs.Progress(10, what="steps", stream=stream)
    for done in range(9):
        progress.update(done, objective=2.0, bound=-np.inf if done < 8 else 1.0)
    first, *_, last = stream.getvalue().split("\r")[1:]
    assert "objective 2" in first
    assert "bound" not in first
    assert "bound 1, gap 100.00%" in last


def test_a_picture_without_a_format_is_refused(tmp_path):
    history = runs.History.of([(0, 2.0, 1.0)])
    for name in ("gap", "gap.txt"):
        with pytest.raises(ModelError, match=r"End its name in \.png, \.svg"):
            history.plot(tmp_path / name)
    with pytest.raises(ModelError, match="cannot be written"):
        history.plot(tmp_path / "none" / "gap.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_leaves_the_backend_of_the_session_alone(tmp_path):
    code = (
        "import sys, matplotlib\nfrom fabric import runs\n"
        "matplotlib.rcParams._set('backend', 'template')\n"
        "runs.History.of([(0, 2.0, 1.0), (1, 1.5, 1.0)]).plot(sys.argv[1])\n"
        "assert matplotlib.rcParams['backend'] == 'template'\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "gap.png")], check=True)
    assert (tmp_path / "gap.png").read_bytes().startswith(b"\x89PNG")


def test_the_history_of_a_search_without_a_bound_yet_is_json():
    points = [(0, 2.0, -np.inf), (5, 1.2, 1.0)]
    told = json.dumps(runs.History.of(points).as_dict(), allow_nan=False)
    assert json.loads(told)["bound"] == [None, 1.0]


def test_the_gap_of_a_maximum_is_read_the_other_way_round():
    np.testing.assert_allclose(runs.History.of([(0, 0.9, 1.0)]).gap, 1 / 9, rtol=1e-12)
