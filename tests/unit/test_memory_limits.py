"""What counts as free memory: the least that any limit around the process leaves."""

import pytest

import fabric as fb
from fabric import _memory


def grouped(monkeypatch, folder, own, files):
    """Stand in for the control groups of a machine."""
    monkeypatch.setattr(_memory, "_CGROUP", folder)
    monkeypatch.setattr(_memory, "_OWN", folder / "own")
    (folder / "own").write_text(own)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_limit_of_an_outer_group_counts(monkeypatch, tmp_path):
    files = {
        "job/step/memory.max": "max", "job/step/memory.current": "10",
        "job/memory.max": "1000", "job/memory.current": "400",
    }  # fmt: skip
    grouped(monkeypatch, tmp_path, "0::/job/step\n", files)
    assert _memory.available() == 600


def test_files_that_were_read_before_do_not_count_as_used(monkeypatch, tmp_path):
    files = {
        "memory.max": "1000", "memory.current": "900",
        "memory.stat": "anon 300\ninactive_file 400\nactive_file 200\n",
    }  # fmt: skip
    grouped(monkeypatch, tmp_path, "0::/\n", files)
    assert _memory.available() == 700


def test_groups_of_version_1_count_too(monkeypatch, tmp_path):
    files = {
        "memory/job/memory.limit_in_bytes": "5000", "memory/job/memory.usage_in_bytes": "4000",
    }  # fmt: skip
    grouped(monkeypatch, tmp_path, "9:memory:/job\n8:pids:/job\n", files)
    assert _memory.available() == 1000


def test_what_does_not_fit_is_refused_with_both_numbers(monkeypatch, tmp_path):
    files = {"memory.max": "1000000000", "memory.current": "0"}
    grouped(monkeypatch, tmp_path, "0::/\n", files)
    with pytest.raises(fb.InfeasibleError, match=r"about 2.00 GB of memory, but 1.00 GB are free"):
        _memory.afford("`work`", 2e9, "Less.")
