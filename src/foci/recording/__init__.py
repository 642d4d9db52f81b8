"""Recording what any model attends to, without changing the model."""

from foci.recording.recorder import record
from foci.recording.tape import Recording

__all__ = ["Recording", "record"]
