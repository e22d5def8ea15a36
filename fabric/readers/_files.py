"""Files in and out: whole, named in every error, and never half-written."""

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from fabric._errors import ModelError

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Text:
    r"""The decoded text of a file.

    Attributes:
        text: With `\n` line ends and without byte order mark.
        source: The name of the file, without its folder.
        fingerprint: "sha256:..." of the bytes after decompression.
        warnings: What was odd about the bytes.
    """

    text: str
    source: str
    fingerprint: str
    warnings: tuple[str, ...] = ()


def load(path: "str | os.PathLike[str] | Text") -> Text:
    """Return the text of a file, unpacked if it is gzip; a string with a line end is text already.

    Args:
        path: A path, or the text itself.

    Raises:
        ModelError: If there is no such file, it is a folder, cannot be read, is empty, is cut
            off, or holds no text.
    """
    if isinstance(path, Text):
        return path
    if isinstance(path, str) and "\n" in path:
        return _decoded(path.encode(), "text")
    file = Path(path)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        message = f"There is no file '{file}'. Check the path, or the folder you are in."
        raise ModelError(message) from None
    except IsADirectoryError:
        message = f"'{file}' is a folder. Name the file inside it."
        raise ModelError(message) from None
    except (OSError, ValueError) as error:
        message = f"'{file}' cannot be read: {getattr(error, 'strerror', None) or error}."
        raise ModelError(message) from None
    if data.startswith(_GZIP):
        data = _unpacked(data, file.name)
    return _decoded(data, file.name)


def _unpacked(data: bytes, name: str) -> bytes:
    try:
        return gzip.decompress(data)
    except EOFError:
        message = (
            f"'{name}' is a gzip file that ends too early: the copy is not whole. Copy it again."
        )
        raise ModelError(message) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f"'{name}' is a damaged gzip file ({error}). Copy it again."
        raise ModelError(message) from None


def _decoded(data: bytes, name: str) -> Text:
    fingerprint = f"sha256:{hashlib.sha256(data).hexdigest()}"
    warnings: list[str] = []
    # Windows PowerShell writes UTF-16 when output is redirected to a file.
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", errors="replace")
    elif b"\0" in data:
        message = f"'{name}' is binary, not text. Give the text that the tool printed."
        raise ModelError(message)
    else:
        text = data.decode("utf-8-sig", errors="replace")
    if bad := text.count("\N{REPLACEMENT CHARACTER}"):
        warnings.append(f"{bad:,} characters are no valid text and were replaced.")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        message = f"'{name}' is empty. Run the tool that wrote it again and look at its errors."
        raise ModelError(message)
    return Text(text, name, fingerprint, tuple(warnings))


def save(path: str | os.PathLike[str], text: str) -> Path:
    """Write a file whole or not at all; gzip when its name ends in `.gz`, the same bytes each time.

    Args:
        path: Where; an existing file is replaced.
        text: What.

    Raises:
        ModelError: If the folder does not exist or cannot be written.
    """
    file = Path(path)
    data = text.encode()
    if file.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    # In the same folder, since a rename is atomic only within one file system.
    partial = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(data)
        partial.replace(file)
    except OSError as error:
        message = f"'{file}' cannot be written: {error.strerror or error}."
        raise ModelError(message) from None
    finally:
        partial.unlink(missing_ok=True)
    return file
