"""What of a worker's environment is written down."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from .members import mapping

if TYPE_CHECKING:
    from .worker.frames import Frame

ENVIRONMENT = frozenset(
    {
        *(
            "host",
            "python",
            "torch",
            "cuda",
            "cudnn",
            "driver",
            "hip",
            "device",
            "devices",
            "device_name",
            "device_count",
            "cpu_name",
            "cpus",
        ),
        *("threads", "memory_bytes", "priority_order", "flags", "git_sha", "profiler", "permissions", "compiler", "os"),
    }
)
"""Members of the environment that are kept; see the docs of the worker."""
_FLAG = re.compile(
    r"[a-z]\w*(\.\w+)*|(OMP|MKL|KMP|GOMP|OPENBLAS|TORCH\w*|PYTORCH|ATEN|CUDA|CUDNN|CUBLAS\w*|NVIDIA|NCCL|TRITON|KINETO|KINETOP|HIP"
    r"|HSA|ROCR|MIOPEN|XLA|PJRT|ZE|SYCL|ONEDNN|DNNL|MALLOC|FLASH\w*|XFORMERS)_\w+"
)
"""Settings that may matter to speed: of torch (lower case), and environment variables of what runs below it."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|AUTH", re.IGNORECASE)


def without_secrets(frame: Frame) -> Frame:
    """Return a frame whose environment has only the members that the docs of the worker name, and no passwords among its flags.

    >>> from kinetop.traces.live.worker.frames import Frame
    >>> told = {"kind": "hello", "environment": {"host": "box", "user": "me", "flags": {"OMP_NUM_THREADS": "2", "HF_TOKEN": "x"}}}
    >>> without_secrets(Frame(told)).header["environment"]
    {'host': 'box', 'flags': {'OMP_NUM_THREADS': '2'}}
    """
    if frame.kind != "hello" or "environment" not in frame.header:
        return frame
    kept = {key: value for key, value in mapping(frame.header, "environment").items() if key in ENVIRONMENT}
    if "flags" in kept:
        flags = mapping(kept, "flags").items()
        kept["flags"] = {key: value for key, value in flags if _FLAG.fullmatch(key) and not _SECRET.search(key)}
    return replace(frame, header={**frame.header, "environment": kept})
