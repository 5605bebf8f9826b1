"""Build or load a C++ module of TVM-FFI; print its answer."""

import json

import tvm_ffi.cpp

module = tvm_ffi.cpp.load_inline("baker_demo", cpp_sources="int twice(int x) { return 2 * x; }", functions=["twice"])
print(json.dumps({"answer": module.twice(21)}))
