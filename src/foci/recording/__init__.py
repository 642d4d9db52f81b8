"""Recording what any model attends to, without changing the model."""

from foci.recording.recorder import Recording, record

__all__ = ["Recording", "record"]
