"""What docs/performance.md says of speed and memory beside its table is what benchmarks/recorded.csv has."""

import types

import pytest
from contestants import INVENTED  # noqa: F401  # lets benchmarks be imported

from benchmarks import recorded, results


def read_recorded():
    """{name of a line: its numbers}, as `--quick` names it; `times` is how many times its rival's time it takes."""
    lines, found = results.read_lines(recorded.RECORD), {}
    medians = {(results.case_of(line), line["contestant"]): float(line["median"]) for line in lines}
    for line in filter(lambda line: line["over"], lines):
        ratio, best, case = float(line["ratio"]), float(line["ratio_best"]), results.case_of(line)
        ours, theirs = medians[case, line["contestant"]], medians[case, line["over"]]
        found[f"{recorded.name_line(line)} over {line['over']}"] = types.SimpleNamespace(
            ratio=ratio, best=best, times=1 / ratio, gb=ours / 1e9, their_gb=theirs / 1e9, mb_more=(ours - theirs) / 1e6
        )
    return found


def in_runtime(model, runtime, kind, over=""):
    """The names of a model's lines at batch 1 and 8; over those in float32."""
    ending = {"onnxruntime": "onnx", "LiteRT": "tflite"}[runtime]
    over = over or f"{runtime}, float32"
    return [f"exports, {model}, {ending}, batch {n}, 224 px, {runtime}, {kind} over {over}" for n in (1, 8)]


def of_pipeline(kind, *contestants):
    return [f"pipeline, {kind}, batch 64, 224 px, train, {name}" for name in contestants]


B16, HYBRID, R50 = "ViT-B/16", "R50+ViT-B/16", "R50x1"
PLAIN = ("float32 over bare", "uint8 over bare", "uint8, not mirrored over bare")
MIXED, MEDIUM = "pad-crop-mixup-cutmix{} over bare, whole image", "medium1{} over bare"
DEVICE = " on the device"
# What docs/performance.md says beside its table, and the lines that it says it of.
STATED = (
    ("folded {0.ratio:.2f} (best {0.best:.2f})", ["inference, R50x1, batch 1, 224 px over matrix product"]),
    (
        "B/16 is {least:.1f} to {most:.1f} times as fast as float32, in onnxruntime and LiteRT",
        in_runtime(B16, "onnxruntime", "dynamic") + in_runtime(B16, "LiteRT", "dynamic"),
    ),
    ("R50+ViT-B/16 {least:.1f} to {most:.1f} times in onnxruntime", in_runtime(HYBRID, "onnxruntime", "dynamic")),
    ("in onnxruntime, {least:.1f} to {most:.1f} in LiteRT", in_runtime(HYBRID, "LiteRT", "dynamic")),
    (
        "B/16 has {least:.2f} to {most:.2f} of OpenVINO's rate",
        in_runtime(B16, "onnxruntime", "int8", "OpenVINO, int8"),
    ),
    (
        "R50x1 is {0.ratio:.1f} times as fast as float32 at batch 1 (best {0.best:.1f}), and {1.ratio:.1f} at batch 8",
        in_runtime(R50, "onnxruntime", "int8"),
    ),
    ("in LiteRT {least:.1f} to {most:.1f} (best {0.best:.1f})", in_runtime(R50, "LiteRT", "int8")),
    (
        "OpenVINO runs the same float32 files in {least:.2f} to {most:.2f} of the time",
        [name for m in (B16, HYBRID, R50) for name in in_runtime(m, "onnxruntime", "float32", "OpenVINO, float32")],
    ),
    (
        "S/16 at batch 1 and R50x1 at batch 8 take {0.mb_more:.0f} and {1.mb_more:.0f} MB more than timm",
        ["memory, ViT-S/16, batch 1, 224 px over timm", "memory, R50x1, batch 8, 224 px over timm"],
    ),
    (
        "L/16 at batch 8 takes {0.gb:.1f} GB, timm {0.their_gb:.1f}",
        ["memory, ViT-L/16, batch 8, 224 px over timm"],
    ),
    (
        "takes {0.times:.1f} times timm's time; building, {1.times:.1f} times",
        [
            "loading, R50x1, time, keras_vit, .safetensors over timm, .safetensors",
            "building, R50x1 over timm",
        ],
    ),
    (
        "of its rate at 224 it has {0.ratio:.2f} at 1,024 pixels, {1.ratio:.2f} at 1,536 and {2.ratio:.2f} at 2,048",
        [f"growth, ViT-S/16, image sizes, {size} px over 224 px" for size in (1024, 1536, 2048)],
    ),
    (
        "{0.ratio:.2f} of timm's rate, by XLA {1.ratio:.2f} (best {1.best:.2f})",
        [f"inference, ViT-Ti/16, batch 1, 224 px{by} over timm" for by in ("", ", keras_vit, XLA")],
    ),
    ("JPEG has {least:.2f} to {most:.2f}", of_pipeline("JPEG", *PLAIN)),
    (
        "with bit {0.ratio:.2f}, with mixup and cutmix {1.ratio:.2f} ({2.ratio:.2f} on the device), with AugReg "
        "medium1 {3.ratio:.2f} ({4.ratio:.2f} on the device)",
        of_pipeline(
            "augmented JPEG",
            "bit over bare, whole image",
            *(name.format(where) for name in (MIXED, MEDIUM) for where in ("", DEVICE)),
        ),
    ),
    ("PNG {least:.2f} to {most:.2f}", of_pipeline("PNG", *PLAIN)),
    (
        "with medium1 {0.ratio:.2f} ({1.ratio:.2f})",
        of_pipeline("augmented PNG", MEDIUM.format(""), MEDIUM.format(DEVICE)),
    ),
    (
        "a short run takes {0.times:.1f} times the time of a bare",
        ["command, ViT-Test/4, batch 16, 32 px, keras-vit pretrain over model.fit"],
    ),
    (
        "S/16 has {0.ratio:.2f} of TensorFlow's rate in inference ({1.ratio:.2f} of timm's) and {2.ratio:.2f} in "
        "training ({3.ratio:.2f} of timm's), R50x1 {4.ratio:.2f} ({5.ratio:.1f}) and {6.ratio:.2f} ({7.ratio:.2f})",
        [
            f"engines, {model}, {kind}, batch 8, 224 px, jax over {over}"
            for model in ("ViT-S/16", R50)
            for kind in ("inference", "training")
            for over in ("tensorflow", "timm")
        ],
    ),
    (
        "R50x1 now has {0.ratio:.2f} of timm's rate in bfloat16 (best {0.best:.2f}), and {1.ratio:.2f} in float32",
        [f"training, R50x1, batch 8, 224 px{precision} over timm" for precision in (", mixed_bfloat16", "")],
    ),
)


@pytest.mark.parametrize(("said", "names"), STATED, ids=[names[0] for _, names in STATED])
def test_the_page_says_what_is_recorded(said, names):
    lines = [read_recorded()[name] for name in names]
    ratios = [line.ratio for line in lines]
    assert said.format(*lines, least=min(ratios), most=max(ratios)) in recorded.PAGE.read_text("utf-8")
