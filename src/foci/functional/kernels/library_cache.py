"""Compiled libraries on disk: stored atomically, and loaded only if complete and from a private folder.

A library ``name.so`` has a file ``name.so.sha256`` with its size and digest. A library without it, or with another
digest, is not loaded: a truncated one ends the process with SIGBUS where it is read, a damaged one with SIGSEGV.

A library runs with all rights of its user. So nothing is loaded from a folder or a file that belongs to another user
(root excepted) or that other users may write to. Where the system has no such owners (Windows) nothing is checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path


class BuildError(Exception):
    """The reason why there is no library; `foci.functional.kernels.status` reports it."""


def check_private(folder: Path) -> None:
    """Raise unless only this user and root can change the contents of ``folder``.

    Args:
        folder: an existing folder, free of symbolic links.

    Raises:
        BuildError: another user owns it or may write to it; the message says how to fix it.
    """
    owner = _foreign_owner(folder.stat())
    if owner is not None:
        raise BuildError(
            f"the cache folder {folder} belongs to user {owner}, expected the user who runs this or root. "
            "Set FOCI_KERNEL_CACHE to a folder of your own."
        )
    if _is_shared(folder.stat()):
        raise BuildError(
            f"other users may write to the cache folder {folder}, expected one that only you can write to. "
            f"Run chmod go-w {folder}, or set FOCI_KERNEL_CACHE."
        )
    for parent in folder.parents:
        mode = parent.stat().st_mode
        # A user who can write to a parent folder can replace this one, unless the sticky bit is set, as on /tmp.
        if _has_owners() and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise BuildError(
                f"every user may write to {parent}, which holds the cache folder {folder}, expected a folder that is "
                f"not open to all. Run chmod o-w {parent}, or set FOCI_KERNEL_CACHE."
            )


def is_whole(library: Path) -> bool:
    """Return whether the library exists, is unchanged since it was stored, and is not writable by other users."""
    try:
        found = library.stat()
        size, digest = _record(library).read_text(encoding="ascii").split()
        if _foreign_owner(found) is not None or _is_shared(found) or found.st_size != int(size):
            return False
        with library.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except (OSError, ValueError):  # missing, unreadable, or no valid record
        return False


def newest_whole(folder: Path, pattern: str) -> Path | None:
    """Return the library in ``folder`` that was stored last, of those that match ``pattern`` and are complete."""
    with contextlib.suppress(OSError):
        found = [library for library in folder.glob(pattern) if is_whole(library)]
        return max(found, key=lambda library: library.stat().st_mtime_ns, default=None)
    return None


def store(fresh: Path, library: Path) -> None:
    """Move a compiled library into its place, with its size and digest beside it.

    The contents reach the disk before the name does, so a power cut leaves the old file or the new one. Between the
    two renames `is_whole` refuses the library.
    """
    fresh.chmod(0o755)  # the compiler obeys the umask, which may leave the file writable for the group
    with fresh.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    record = _record(fresh)
    record.write_text(f"{fresh.stat().st_size} {digest}\n", encoding="ascii")
    for source, target in ((fresh, library), (record, _record(library))):
        with source.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(source, target)
    _flush_folder(library.parent)


def _record(library: Path) -> Path:
    return library.with_name(f"{library.name}.sha256")


def _has_owners() -> bool:
    return hasattr(os, "geteuid")


def _foreign_owner(found: os.stat_result) -> int | None:
    """Return the owner, if it is neither root, who can change everything anyway, nor the user who runs this."""
    return found.st_uid if _has_owners() and found.st_uid not in (0, os.geteuid()) else None


def _is_shared(found: os.stat_result) -> bool:
    return _has_owners() and bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _flush_folder(folder: Path) -> None:
    """Write the folder's names to the disk, where the system can."""
    if os.name == "posix":
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
