/* Copies and fills: done by the host at once, or only recorded while a stream captures. */
#include <cuda.h>
#include "vgpu.h"

#define AT(p) ((void *)(uintptr_t)(p))

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  vgpu_copy(AT(to), AT(from), size);
  return 0;
}
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  if (!vgpu_launch(stream, "memcpy"))
    vgpu_copy(AT(to), AT(from), size);
  return 0;
}
EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
  vgpu_copy(AT(to), from, size);
  return 0;
}
EXPORT CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
  vgpu_copy(to, AT(from), size);
  return 0;
}
EXPORT CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
  vgpu_copy(AT(to), AT(from), size);
  return 0;
}
EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
  return cuMemcpyAsync(to, (CUdeviceptr)from, size, stream);
}
EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream) {
  return cuMemcpyAsync((CUdeviceptr)to, from, size, stream);
}
EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return cuMemcpyAsync(to, from, size, stream);
}
EXPORT CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t size) {
  vgpu_set(AT(to), value, size);
  return 0;
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream stream) {
  if (!vgpu_launch(stream, "memset"))
    vgpu_set(AT(to), value, size);
  return 0;
}
EXPORT CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
  if (!value)
    vgpu_set(AT(to), 0, count * 4);
  else if (count < 1 << 18)
    for (size_t i = 0; i < count; i++)
      ((unsigned *)AT(to))[i] = value;
  return 0;
}
EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return vgpu_launch(stream, "memset") ? CUDA_SUCCESS : cuMemsetD32(to, value, count);
}
