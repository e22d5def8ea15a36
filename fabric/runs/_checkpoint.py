"""`Checkpoint`: the state of long work in one file, which is whole or not there."""

import io
import json
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fabric._errors import ModelError, path_in_quotes
from fabric.runs._whole import sweep, write_whole

_FORMAT = 2
_HEAD = "head.json"
Tree = TypeVar("Tree")
Value = Any
"""An array, a number, a text, true or false, or None."""


class Checkpoint:
    """The state of long work, in one file.

    A save writes a temporary file beside the old one and puts it in its place, so that a kill at
    any moment leaves the old state or the new one. The file carries the fingerprint of the problem,
    and a file of another problem is refused.

    Args:
        path: The file, in a folder that exists.
        fingerprint: Of all that decides the result: see `fingerprint`.
        every: Seconds between two saves of which `due` speaks. Default 30.

    Raises:
        ModelError: If the folder does not exist or cannot be written, or the file is a folder.

    Examples:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     kept = Checkpoint(pathlib.Path(folder) / "run.ckpt", fingerprint="a1")
        ...     print(kept.load())
        ...     kept.save({"step": 3, "weights": np.ones(2)})
        ...     print(kept.load())
        None
        {'step': 3, 'weights': array([1., 1.])}
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, every: float = 30.0):
        self.path, self.fingerprint, self.every = Path(path), fingerprint, every
        self._saved = time.monotonic()
        folder = self.path.resolve().parent
        fault = ""
        if not folder.is_dir():
            fault = f"a folder that exists, but {path_in_quotes(folder)} is none. Make it first."
        elif self.path.is_dir():
            fault = "a file, but this is a folder. Name a file inside it."
        elif not os.access(folder, os.W_OK):
            fault = (
                f"a folder that can be written, but {path_in_quotes(folder)} cannot. Name a file "
                f"elsewhere."
            )
        if fault:
            message = f"`checkpoint={path_in_quotes(path)}` needs {fault}"
            raise ModelError(message)

    @property
    def due(self) -> bool:
        """Whether the last save is long enough ago for another one."""
        return time.monotonic() - self._saved >= self.every

    def save(self, state: Mapping[str, Value]) -> None:
        """Write a state, in place of the one before.

        Args:
            state: Arrays, numbers, texts, true, false or None, by name. Types and values come
                back as they were; trees go through `packed`.

        Raises:
            ModelError: If the file cannot be written.
        """
        plain = {k: v for k, v in state.items() if _is_plain(v)}
        arrays = {k: np.asarray(v) for k, v in state.items() if k not in plain}
        scalars = [k for k in arrays if isinstance(state[k], np.generic)]
        head = {
            "format": _FORMAT, "fingerprint": self.fingerprint, "plain": plain,
            "arrays": list(arrays), "scalars": scalars,
        }  # fmt: skip
        try:
            write_whole(self.path, lambda file: _write(file, json.dumps(head), arrays))
        except OSError as error:
            message = (
                f"The checkpoint {path_in_quotes(self.path)} cannot be written: "
                f"{error.strerror or error}. Free some space, or name a file elsewhere."
            )
            raise ModelError(message) from None
        self._saved = time.monotonic()

    def load(self) -> dict[str, Value] | None:
        """Return the state that was saved last, or None if there is no file.

        Raises:
            ModelError: If the file is no checkpoint, or one of another problem.
        """
        sweep(self.path)
        if not self.path.exists():
            return None
        # A damaged file can fail anywhere in three libraries.
        try:
            head, content = _read(self.path)
            found, version = str(head["fingerprint"]), int(head["format"])
            plain = dict(head["plain"])
            arrays = {name: _array(content[name]) for name in head["arrays"]}
            scalars = {name: arrays[name][()] for name in head["scalars"]}
        except Exception:
            message = (
                f"{path_in_quotes(self.path)} is no checkpoint that can be read. Remove it to "
                f"begin anew, or name another file."
            )
            raise ModelError(message) from None
        if version != _FORMAT:
            message = (
                f"The checkpoint {path_in_quotes(self.path)} has format {version}, and this "
                f"version reads {_FORMAT}. Remove it to begin anew."
            )
            raise ModelError(message)
        if found != self.fingerprint:
            message = (
                f"The checkpoint {path_in_quotes(self.path)} is of another problem: its "
                f"fingerprint is {found[:12]}, that of this one {self.fingerprint[:12]}. Network, "
                f"demand, options and seed must be the same; remove the file to begin anew."
            )
            raise ModelError(message)
        return plain | arrays | scalars


def packed(name: str, tree: Any) -> dict[str, Value]:
    """Return the leaves of a tree of arrays under names that `unpacked` knows.

    Examples:
        >>> packed("adam", {"m": np.zeros(1), "v": np.ones(1)})
        {'adam/0': array([0.]), 'adam/1': array([1.])}
    """
    import jax

    return {f"{name}/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def unpacked(name: str, state: Mapping[str, Value], like: Tree) -> Tree:
    """Return the tree that `packed` took apart.

    Args:
        name: As given to `packed`.
        state: What was saved.
        like: A tree of the same structure, for example a fresh state of the optimiser.

    Examples:
        >>> state = packed("adam", {"m": np.zeros(1), "v": np.ones(1)})
        >>> unpacked("adam", state, {"m": 0, "v": 0})
        {'m': array([0.]), 'v': array([1.])}
    """
    import jax

    leaves, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(structure, [state[f"{name}/{i}"] for i in range(len(leaves))])


def _is_plain(value: Value) -> bool:
    return value is None or type(value) in (bool, int, float, str)


def _write(file: Any, head: str, arrays: Mapping[str, np.ndarray]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_HEAD, head)
        for name, array in arrays.items():
            with archive.open(name, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _read(path: Path) -> tuple[dict[str, Value], dict[str, bytes]]:
    """Return the head, and the content by name; all of it is held against its checksum."""
    with zipfile.ZipFile(path) as archive:
        # `read` takes a member to its end, where the checksum is looked at.
        content = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(content.pop(_HEAD)), content


def _array(data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    array = np.lib.format.read_array(file, allow_pickle=False)
    if file.read(1):
        message = "bytes after the end"
        raise ValueError(message)
    return array
