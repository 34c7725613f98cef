"""Run as a program by tests/commands/test_both_engines.py: the commands one after the other, on Keras' backend.

    python all_commands.py IMAGES OUT

Writes what they print as JSON, and their files, into OUT. IMAGES is a folder of pictures.
"""

import sys
from pathlib import Path

from typer.testing import CliRunner

from keras_vit.cli import app

MODEL = "ViT-Mini/4:fashion-mnist"
TRAIN = "--batch-size 32 --augmentation none --every 4 --data digits"
COMMANDS = {  # {name: words; OUT and IMAGES are the folders}
    "predict.jsonl": f"predict IMAGES --model {MODEL} --json",
    "fewshot.json": f"fewshot {MODEL} --data digits --shots 5 --json",
    "probe.json": f"probe {MODEL} --data digits --json",
    "embed": f"embed IMAGES --model {MODEL} --out OUT/vectors.npz",
    "near": "near IMAGES/0.png --in OUT/vectors.npz --out OUT/near.html",
    "preview": "preview --data digits --out OUT/preview.png",
    "finetune": f"finetune {TRAIN} --model {MODEL} --steps 8 --out OUT/run",
    "evaluate.json": "evaluate OUT/run --data digits --json",
    "protocol": f"finetune {TRAIN} --model {MODEL} --protocol paper --seeds 2 --steps 2 --out OUT/protocol",
    "pretrain": f"pretrain {TRAIN} --model ViT-Test/4 --steps 4 --out OUT/pretrained",
    "masked-patches": f"pretrain {TRAIN} --model ViT-Test/4 --objective masked-patches --steps 4 --out OUT/masked",
    "inspect": "inspect OUT/run --out OUT/report",
    "export": "export OUT/run --to onnx --quantize dynamic --out OUT/dist",
    "verify": "verify OUT/dist",
    "compare.json": "compare OUT/dist OUT/run --data digits --json",
}


def main(images, out):
    for name, words in COMMANDS.items():
        words = [word.replace("OUT", str(out)).replace("IMAGES", str(images)) for word in words.split()]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (name, done.output[-2000:], done.exception)
        (out / f"{Path(name).stem}.txt").write_text(done.stdout)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
