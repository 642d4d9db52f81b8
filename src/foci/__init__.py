"""foci: attention for PyTorch. Every mechanism of the literature, exact, mask-safe, and open to inspection.

    import foci
    attention = foci.build("additive", query_dim=64, key_dim=128, hidden_dim=96)
    output, weights, state = attention(query, key, mask=foci.masks.keys(valid))
    weights.topk(3)

    foci.train("translate", {"data": {"source": "a.en", "target": "a.de"}}, out="runs/x")
    foci.load("runs/x")("A man rides a bike.", beam_size=5)

Every name below is stable; docs/design.md describes how they fit together. Each is imported on first use, so that
`import foci` and the help of the command line do not load torch.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from foci.lazy import attach

if TYPE_CHECKING:
    from foci import catalog as catalog
    from foci import decoding as decoding
    from foci import errors as errors
    from foci import functional as functional
    from foci import layers as layers
    from foci import masks as masks
    from foci import mechanisms as mechanisms
    from foci import metrics as metrics
    from foci import models as models
    from foci import probing as probing
    from foci import tasks as tasks
    from foci import training as training
    from foci import viz as viz
    from foci.builders import build as build
    from foci.catalog import list_mechanisms as list_mechanisms
    from foci.contract.checking import check as check
    from foci.functional.attend import attend as attend
    from foci.functional.kernels import decompositions as decompositions
    from foci.mechanisms.attention import Attention as Attention
    from foci.mechanisms.heads import ConditionalAttention as ConditionalAttention
    from foci.mechanisms.heads import DeformableAttention as DeformableAttention
    from foci.mechanisms.heads import DeformableWeights as DeformableWeights
    from foci.mechanisms.heads import KeyValueCache as KeyValueCache
    from foci.mechanisms.heads import MultiHeadAttention as MultiHeadAttention
    from foci.mechanisms.heads import MultiStepAttention as MultiStepAttention
    from foci.mechanisms.heads import PreallocatedCache as PreallocatedCache
    from foci.mechanisms.heads import Rotary as Rotary
    from foci.mechanisms.heads import SlidingCache as SlidingCache
    from foci.mechanisms.memory import MemoryState as MemoryState
    from foci.mechanisms.memory import NeuralTuringMemory as NeuralTuringMemory
    from foci.mechanisms.pair import AttentionOverAttention as AttentionOverAttention
    from foci.mechanisms.pair import WordByWord as WordByWord
    from foci.mechanisms.pool import AttentionPool as AttentionPool
    from foci.mechanisms.pool import HierarchicalPool as HierarchicalPool
    from foci.mechanisms.pool import HierarchicalWeights as HierarchicalWeights
    from foci.mechanisms.structured import CRF as CRF
    from foci.mechanisms.visual import CBAM as CBAM
    from foci.mechanisms.visual import EfficientChannel as EfficientChannel
    from foci.mechanisms.visual import SpatialAttention as SpatialAttention
    from foci.mechanisms.visual import SqueezeExcitation as SqueezeExcitation
    from foci.outputs import AttentionOutput as AttentionOutput
    from foci.outputs import PairOutput as PairOutput
    from foci.recording import Edits as Edits
    from foci.recording import Recording as Recording
    from foci.recording import edit as edit
    from foci.recording import record as record
    from foci.tasks.frame.predictor import Predictor as Predictor
    from foci.tasks.frame.predictor import load as load
    from foci.tasks.frame.probing.runs import probe as probe
    from foci.tasks.frame.task import Evaluation as Evaluation
    from foci.tasks.frame.task import Prediction as Prediction
    from foci.tasks.frame.train import train as train
    from foci.training.engine import TrainingResult as TrainingResult
    from foci.training.own_model import fit as fit
    from foci.viz.trace import Trace as Trace
    from foci.weights import Weights as Weights
_HOMES = {
    "Attention": "foci.mechanisms.attention",
    "AttentionOutput": "foci.outputs",
    "AttentionOverAttention": "foci.mechanisms.pair",
    "AttentionPool": "foci.mechanisms.pool",
    "CBAM": "foci.mechanisms.visual",
    "CRF": "foci.mechanisms.structured",
    "ConditionalAttention": "foci.mechanisms.heads",
    "DeformableAttention": "foci.mechanisms.heads",
    "DeformableWeights": "foci.mechanisms.heads",
    "Edits": "foci.recording",
    "EfficientChannel": "foci.mechanisms.visual",
    "Evaluation": "foci.tasks.frame.task",
    "HierarchicalPool": "foci.mechanisms.pool",
    "HierarchicalWeights": "foci.mechanisms.pool",
    "KeyValueCache": "foci.mechanisms.heads",
    "MemoryState": "foci.mechanisms.memory",
    "MultiHeadAttention": "foci.mechanisms.heads",
    "MultiStepAttention": "foci.mechanisms.heads",
    "NeuralTuringMemory": "foci.mechanisms.memory",
    "PairOutput": "foci.outputs",
    "PreallocatedCache": "foci.mechanisms.heads",
    "Prediction": "foci.tasks.frame.task",
    "Predictor": "foci.tasks.frame.predictor",
    "Recording": "foci.recording",
    "Rotary": "foci.mechanisms.heads",
    "SlidingCache": "foci.mechanisms.heads",
    "SpatialAttention": "foci.mechanisms.visual",
    "SqueezeExcitation": "foci.mechanisms.visual",
    "Trace": "foci.viz.trace",
    "TrainingResult": "foci.training.engine",
    "Weights": "foci.weights",
    "WordByWord": "foci.mechanisms.pair",
    "attend": "foci.functional.attend",
    "build": "foci.builders",
    "catalog": "foci",
    "check": "foci.contract.checking",
    "decoding": "foci",
    "decompositions": "foci.functional.kernels",
    "edit": "foci.recording",
    "errors": "foci",
    "fit": "foci.training.own_model",
    "functional": "foci",
    "layers": "foci",
    "list_mechanisms": "foci.catalog",
    "load": "foci.tasks.frame.predictor",
    "masks": "foci",
    "mechanisms": "foci",
    "metrics": "foci",
    "models": "foci",
    "probe": "foci.tasks.frame.probing.runs",
    "probing": "foci",
    "record": "foci.recording",
    "tasks": "foci",
    "train": "foci.tasks.frame.train",
    "training": "foci",
    "viz": "foci",
}
"""Where each name is defined; foci itself for its modules. Type checkers read the imports above instead."""

try:
    __version__ = version("foci")
except PackageNotFoundError:  # run from the source without being installed
    __version__ = "unknown"

if not TYPE_CHECKING:
    __all__ = sorted(_HOMES)
    __getattr__, __dir__ = attach(__name__, _HOMES)
