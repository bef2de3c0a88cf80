"""Losses of image-text and image encoders; each is a module to call in any training loop."""

from training.objectives.composed import WeightedSum
from training.objectives.contrastive_binary import ContrastiveBinary
from training.objectives.ifm import IFM
from training.objectives.infonce import InfoNCE
from training.objectives.labels import Labels
from training.objectives.local_uniformity import LocalUniformity
from training.objectives.lovt import LoVT
from training.objectives.ltd import LTD
from training.objectives.quest import QUEST
from training.objectives.reco import Orthogonality, ReCo
from training.objectives.sigmoid import Sigmoid
from training.objectives.two_views import BYOL, PixPro, SimCLR
from training.objectives.vse import VSE

__all__ = [
    "BYOL",
    "IFM",
    "LTD",
    "QUEST",
    "VSE",
    "ContrastiveBinary",
    "InfoNCE",
    "Labels",
    "LoVT",
    "LocalUniformity",
    "Orthogonality",
    "PixPro",
    "ReCo",
    "Sigmoid",
    "SimCLR",
    "WeightedSum",
]
