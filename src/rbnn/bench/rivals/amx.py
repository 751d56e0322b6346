"""OpenVINO and AMX: on some machines, including virtual ones, its int8 kernels for AMX crash the process with an
illegal instruction.  They are therefore tried first in a separate process, which runs this file as a program.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

CPU = Path("/proc/cpuinfo")
LIMIT, WITHOUT_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16"
"""The environment variable that limits the instructions OpenVINO may use."""


@cache
def avoid_deadly_amx() -> str | None:
    """If OpenVINO's kernels for AMX crash the process, tell OpenVINO not to use them, and return a sentence about it;
    otherwise None.  Call this before OpenVINO is used."""
    if LIMIT in os.environ or not CPU.exists() or "amx_int8" not in CPU.read_text(encoding="utf-8"):
        return None
    if subprocess.run([sys.executable, "-m", __name__], capture_output=True).returncode >= 0:
        return None
    os.environ[LIMIT] = WITHOUT_AMX
    return "openvino's kernels for AMX are left out: on this machine they end the process"


def main() -> None:
    """One int8 convolution."""
    import numpy as np
    import openvino as ov
    from openvino import opset14 as operations

    def rounded(x: ov.Node, levels: int) -> ov.Node:
        low, high = np.float32(-1), np.float32(1)
        return operations.fake_quantize(x, low, high, low, high, levels)

    image = operations.parameter([1, 16, 8, 8], np.float32)
    weight = operations.constant(np.full((16, 16, 3, 3), 0.5, np.float32))
    one = [1, 1]
    answer = operations.convolution(rounded(image, 256), rounded(weight, 255), one, one, one, one)
    compiled = ov.Core().compile_model(ov.Model([answer], [image], "int8"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    compiled.create_infer_request().infer({0: np.zeros((1, 16, 8, 8), np.float32)})


if __name__ == "__main__":
    main()
