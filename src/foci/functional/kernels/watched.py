"""Who looks on: a call outside of torch must not happen unseen."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_traced() -> bool:
    """Whether operations are being recorded or faked, so that a call outside torch would go unseen."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def is_watched(*tensors: Tensor) -> bool:
    """Whether something needs to see plain operations: a transform, a tensor subclass, forward mode, a trace."""
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0 or torch._C._get_tracing_state():
        return True
    return any(type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter for tensor in tensors)
