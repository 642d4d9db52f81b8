"""Recording what any model attends to and changing what it reads, without modifying the model."""

from foci.recording.editor import edit
from foci.recording.edits import Edits
from foci.recording.recorder import record
from foci.recording.tape import Recording

__all__ = ["Edits", "Recording", "edit", "record"]
