"""Noticing what a model calls while a block is open, to record and edit it."""

from foci.recording.watching.hooks import editable, recordable, watching
from foci.recording.watching.session import Session, paths_of

__all__ = ["Session", "editable", "paths_of", "recordable", "watching"]
