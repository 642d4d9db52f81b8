"""Attention that a model's own code writes out: a softmax whose result is multiplied with values, in any spelling.

    softmax(query @ key.mT) @ values            F.softmax, torch.softmax, nn.Softmax, exp(scores) / exp(scores).sum(…),
                                                exp(scores − logsumexp(scores))
    einsum("bhqk,bhkd->bhqd", weights, values)  matmul, bmm, einsum, a product and its sum

`WrittenOut` is told of each function of torch that a model calls. It follows the result of a softmax through what
models do to weights (masks, dropout, the difference of two, other shapes and dtypes) to the product that adds up values
over the axis of the softmax. Nothing is computed again: the weights are those that the model computed.
"""

from foci.recording.written_out.follow import WrittenOut
from foci.recording.written_out.reads import Delayed, Read, Softmax

__all__ = ["Delayed", "Read", "Softmax", "WrittenOut"]
