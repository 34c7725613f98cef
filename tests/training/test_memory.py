"""How much memory a training step takes, with all that its process needs."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent.parent / "support" / "training_memory.py"
MB = 10**6


def measure_step(*arguments):
    """The most bytes that the process has in memory."""
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.long
def test_a_step_at_1024_pixels_keeps_no_attention_weights():
    """A is 403 MB in each of S/16's twelve blocks: 4.8 GB in all."""
    assert measure_step("ViT-S/16", 1024, 12, 1) < 3000 * MB


@pytest.mark.slow
@pytest.mark.long
def test_rematerialization_takes_less_than_half_the_memory_of_an_image():
    """As deep as L/16, but so narrow that gradients, which do not grow with the batch, take little beside an image."""
    more = {}
    for how in ((), ("remat",)):
        few, many = (measure_step("ViT-Ti/16", 224, 24, batch, *how) for batch in (4, 16))
        more[how] = many - few
    assert more[("remat",)] < 0.5 * more[()]
