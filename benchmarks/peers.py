"""What Keras ViT is measured beside. None of it must be installed."""

import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """A library to compare with: the modules that it needs, and what pip installs for them."""

    modules: tuple[str, ...]
    install: str
    about: str


PEERS = {
    "timm": Peer(("torch", "timm"), "torch timm", "timm's models in PyTorch; its ONNX export in onnxruntime"),
    "timm-compiled": Peer(("torch", "timm"), "torch timm", "the same models after torch.compile"),
    "keras-hub": Peer(("keras_hub",), "keras-hub", "keras-hub's ViT, on the same backend"),
    "keras.applications": Peer(("keras",), "keras", "Keras' ResNet50V2 and ResNet101V2, on the same backend"),
    "openvino": Peer(("openvino",), "openvino", "OpenVINO on our ONNX files"),
}


def find_absent(name: str) -> tuple[str, ...]:
    """The modules that a peer needs and that are not installed."""
    return tuple(module for module in PEERS[name].modules if importlib.util.find_spec(module) is None)


def describe_absence(name: str) -> str:
    """The sentence for a peer that is not installed."""
    absent = find_absent(name)
    state = f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed"
    return f"{name} is not compared, since {state}. To compare: pip install {PEERS[name].install}"
