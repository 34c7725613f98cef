"""onnxruntime-web, of one version: where its files are, and what they must be."""

import base64
import shutil
from dataclasses import dataclass
from pathlib import Path

VERSION = "1.30.0"
NETWORK = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{VERSION}/dist/"
VENDORED = "./runtime/"  # of the page
LICENCES = ("LICENSE", "ThirdPartyNotices.txt")  # from the Python package onnxruntime: that of npm has no such files


@dataclass(frozen=True)
class RuntimeFile:
    """A file of the runtime: its name, length in bytes and SHA-256 in hexadecimal."""

    name: str
    bytes: int
    sha256: str

    @property
    def address(self) -> str:
        """Where the content network has it."""
        return NETWORK + self.name

    @property
    def integrity(self) -> str:
        """What a browser compares the file with (W3C, Subresource Integrity)."""
        return "sha256-" + base64.b64encode(bytes.fromhex(self.sha256)).decode()

    def fetch(self) -> Path:
        """The path of the file in the cache, fetched at the first call.

        Raises:
            DownloadError: when it cannot be fetched; without a network, the message says where the file may be put.
        """
        from keras_vit.zoo.fetch.download import fetch
        from keras_vit.zoo.names.rows import PublicCheckpoint

        row = PublicCheckpoint(self.address, bytes=self.bytes, bytes_source="exact", sha256=self.sha256)
        return fetch(row)


# By what the model runs on: the script, and the WebAssembly that it starts.
RUNTIME = {
    "wasm": (
        RuntimeFile(
            "ort.wasm.bundle.min.mjs", 73054, "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90"
        ),
        RuntimeFile(
            "ort-wasm-simd-threaded.wasm",
            14239897,
            "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
        ),
    ),
    "webgpu": (
        RuntimeFile(
            "ort.webgpu.bundle.min.mjs", 117732, "0730816731ce2cdfb06f273da065d4a1c7091eb9d1756a83b2916c8a89d015e2"
        ),
        RuntimeFile(
            "ort-wasm-simd-threaded.asyncify.wasm",
            26781914,
            "39f9f0894d478800487ed9f7dbe92618498db320cf55c8e3d89adff8dce658da",
        ),
    ),
}

# ONNX's operators that it has for WebGPU (docs/webgpu-operators.md of the npm package, of this version).
WEBGPU_OPERATORS = frozenset(
    """
    Abs Acos Acosh Add ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Clip Concat
    Conv ConvTranspose Cos Cosh CumSum DFT DepthToSpace DequantizeLinear Div Einsum Elu Equal Erf Exp Expand
    Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater
    GreaterOrEqual GridSample HardSigmoid HardSwish If InstanceNormalization LayerNormalization LeakyRelu Less
    LessOrEqual Log MatMul MaxPool Mul Neg Not Pad Pow Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize
    ScatterND Shape Sigmoid Sin Sinh Slice Softmax Split Sqrt Squeeze Sub Tan Tanh ThresholdedRelu Tile
    Transpose Unsqueeze Where
    """.split()
)


def fetch_runtime(backends: tuple[str, ...]) -> list[Path]:
    """The files of these backends in the cache.

    Raises:
        DownloadError: as `RuntimeFile.fetch`.
    """
    return [file.fetch() for backend in backends for file in RUNTIME[backend]]


def copy_runtime(backends: tuple[str, ...], folder: Path) -> None:
    """Copies the files of these backends and their licences into the new folder; raises as `fetch_runtime`."""
    import onnxruntime

    folder.mkdir()
    licences = [Path(onnxruntime.__file__).with_name(name) for name in LICENCES]
    for path in [*fetch_runtime(backends), *licences]:
        shutil.copyfile(path, folder / path.name)


def describe_runtime(backends: tuple[str, ...], vendor: bool) -> dict[str, dict]:
    """Per backend: the addresses of its script and its WebAssembly as the page has them, with bytes and integrity."""
    place = VENDORED if vendor else NETWORK
    return {
        backend: {"script": place + script.name, "binary": place + binary.name, "bytes": binary.bytes}
        | {"script_integrity": script.integrity, "integrity": binary.integrity}
        for backend, (script, binary) in ((backend, RUNTIME[backend]) for backend in backends)
    }
