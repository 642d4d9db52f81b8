"""Mechanisms whose weights depend on one another: marginals of a distribution over whole structures."""

from foci.mechanisms.structured.crf import CRF, Constraints, constraints

__all__ = ["CRF", "Constraints", "constraints"]
