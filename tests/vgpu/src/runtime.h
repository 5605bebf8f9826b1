/* Shared by the parts of the stand-in libcudart. */
#pragma once
#define RUNTIME_VERSION 13000 /* as cudaRuntimeGetVersion counts */
extern __thread cudaError_t vgpu_last_error;
/* Return a driver's answer as the runtime's, remembered for cudaGetLastError. */
#define R(x)                                                                                                           \
  do {                                                                                                                 \
    CUresult r_ = (x);                                                                                                 \
    if (r_)                                                                                                            \
      vgpu_last_error = (cudaError_t)r_;                                                                               \
    return (cudaError_t)r_;                                                                                            \
  } while (0)
#define S(s) ((CUstream)(s))
#define P(p) ((CUdeviceptr)(p))
typedef cudaError_t E;
