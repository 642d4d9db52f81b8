"""What a generator gives, piece by piece, and what it returns."""


def drained(stream):
    """All pieces, and the return value."""
    pieces = []
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as end:
            return pieces, end.value
