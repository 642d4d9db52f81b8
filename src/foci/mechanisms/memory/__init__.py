"""Mechanisms that keep a memory between calls: ``m(input, state) -> (output, state)``."""

from foci.mechanisms.memory.ntm import MemoryState, NeuralTuringMemory

__all__ = ["MemoryState", "NeuralTuringMemory"]
