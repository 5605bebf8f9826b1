"""Build or load a C++ extension of torch; print its answer and how long it took (the first build takes a minute)."""

import json
import time

from torch.utils.cpp_extension import load_inline

began = time.monotonic()
module = load_inline("baker_demo", "int twice(int x) { return 2 * x; }", functions=["twice"], extra_cflags=["-O0"])
print(json.dumps({"answer": module.twice(21), "seconds": time.monotonic() - began}))
