/* Stand-in libcudart: the documented runtime API as a thin layer over the stand-in driver. Errors, devices, memory.
 * NVIDIA's own asks the driver for undocumented tables (cuGetExportTable), which are not imitated. */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vgpu.h"
#include "runtime.h"

__thread cudaError_t vgpu_last_error;

/* errors, versions, devices */
EXPORT E cudaGetLastError(void) {
  E e = vgpu_last_error;
  vgpu_last_error = 0;
  return e;
}
EXPORT E cudaPeekAtLastError(void) { return vgpu_last_error; }
EXPORT const char *cudaGetErrorString(E e) {
  return e == 0                             ? "no error"
         : e == cudaErrorMemoryAllocation   ? "out of memory"
         : e == cudaErrorNoDevice           ? "no CUDA-capable device is detected"
         : e == cudaErrorInsufficientDriver ? "CUDA driver version is insufficient for CUDA runtime version"
                                            : "stand-in GPU error";
}
EXPORT const char *cudaGetErrorName(E e) { return e ? "cudaErrorVgpu" : "cudaSuccess"; }
EXPORT E cudaDriverGetVersion(int *v) { R(cuDriverGetVersion(v)); }
EXPORT E cudaRuntimeGetVersion(int *v) {
  *v = RUNTIME_VERSION;
  return 0;
}
/* Minor version compatibility ends at the major version: an older driver serves nothing (CUDA programming guide, CUDA Compatibility). */
static int driver_too_old(void) {
  if (vgpu_cuda_version() / 1000 >= RUNTIME_VERSION / 1000)
    return 0;
  vgpu_last_error = cudaErrorInsufficientDriver;
  return 1;
}
EXPORT E cudaGetDeviceCount(int *n) {
  if (driver_too_old())
    return vgpu_last_error;
  *n = vgpu_count();
  if (!*n) {
    vgpu_last_error = cudaErrorNoDevice;
    return vgpu_last_error;
  }
  return 0;
}
EXPORT E cudaGetDevice(int *d) {
  *d = vgpu_current_device(-1);
  return 0;
}
EXPORT E cudaSetDevice(int d) {
  if (driver_too_old())
    return vgpu_last_error;
  if (d < 0 || d >= vgpu_count()) {
    vgpu_last_error = cudaErrorInvalidDevice;
    return vgpu_last_error;
  }
  vgpu_current_device(d);
  return 0;
}
EXPORT E cudaInitDevice(int d, unsigned a, unsigned b) { return 0; }
EXPORT E cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) {
  R(cuDeviceGetAttribute(v, (CUdevice_attribute)a, d));
}
EXPORT E cudaDeviceGetPCIBusId(char *s, int n, int d) { R(cuDeviceGetPCIBusId(s, n, d)); }
EXPORT E cudaDeviceGetByPCIBusId(int *d, const char *s) {
  *d = 0;
  return 0;
}
EXPORT E cudaDeviceGetStreamPriorityRange(int *l, int *h) { R(cuCtxGetStreamPriorityRange(l, h)); }
EXPORT E cudaDeviceGetLimit(size_t *v, enum cudaLimit l) {
  *v = 1 << 20;
  return 0;
}
EXPORT E cudaDeviceCanAccessPeer(int *c, int a, int b) {
  *c = a != b;
  return 0;
}
static int at(int a) {
  int v;
  cuDeviceGetAttribute(&v, a, 0);
  return v;
}
EXPORT E cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  const vgpu_product *g = vgpu_device();
  memset(p, 0, sizeof *p);
  snprintf(p->name, 256, "%s", g->name);
  cuDeviceGetUuid((CUuuid *)&p->uuid, d);
  p->totalGlobalMem = vgpu_total();
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = g->capability / 10;
  p->minor = g->capability % 10;
  p->textureAlignment = 512;
  p->multiProcessorCount = g->sms;
  p->canMapHostMemory = 1;
  p->concurrentKernels = p->ECCEnabled = 1;
  p->pciBusID = 0x10 + d;
  p->asyncEngineCount = 3;
  p->unifiedAddressing = 1;
  p->memoryBusWidth = g->bus_bits;
  p->l2CacheSize = g->l2;
  p->persistingL2CacheMaxSize = at(108);
  p->maxThreadsPerMultiProcessor = at(39);
  p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = g->shared_sm;
  p->regsPerMultiprocessor = 65536;
  p->managedMemory = 1;
  p->computePreemptionSupported = p->canUseHostPointerForRegisteredMem = 1;
  p->cooperativeLaunch = 1;
  p->sharedMemPerBlockOptin = g->shared_block;
  p->maxBlocksPerMultiProcessor = at(106);
  p->reservedSharedMemPerBlock = 1024;
  p->hostRegisterSupported = 1;
  p->memoryPoolsSupported = 1;
  p->ipcEventSupported = 1;
  p->clusterLaunch = g->capability >= 90;
  p->unifiedFunctionPointers = g->capability >= 90;
  return 0;
}
/* memory */
EXPORT E cudaMalloc(void **p, size_t n) {
  if (!n) {
    *p = 0;
    return 0;
  }
  R(cuMemAlloc((CUdeviceptr *)p, n));
}
EXPORT E cudaMallocAsync(void **p, size_t n, cudaStream_t s) { return cudaMalloc(p, n); }
EXPORT E cudaMallocFromPoolAsync(void **p, size_t n, cudaMemPool_t m, cudaStream_t s) { return cudaMalloc(p, n); }
EXPORT E cudaMallocManaged(void **p, size_t n, unsigned f) { return cudaMalloc(p, n); }
EXPORT E cudaFree(void *p) {
  if (!p)
    return 0;
  R(cuMemFree(P(p)));
}
EXPORT E cudaFreeAsync(void *p, cudaStream_t s) { return cudaFree(p); }
EXPORT E cudaHostAlloc(void **p, size_t n, unsigned f) { R(cuMemHostAlloc(p, n, f)); }
EXPORT E cudaMallocHost(void **p, size_t n) { R(cuMemHostAlloc(p, n, 0)); }
EXPORT E cudaFreeHost(void *p) { R(cuMemFreeHost(p)); }
EXPORT E cudaHostRegister(void *p, size_t n, unsigned f) { R(cuMemHostRegister(p, n, f)); }
EXPORT E cudaHostUnregister(void *p) { R(cuMemHostUnregister(p)); }
EXPORT E cudaHostGetDevicePointer(void **d, void *h, unsigned f) {
  *d = h;
  return 0;
}
EXPORT E cudaMemGetInfo(size_t *f, size_t *t) { R(cuMemGetInfo(f, t)); }
EXPORT E cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  memset(a, 0, sizeof *a);
  int dv = vgpu_is_device_memory(p, 0, 0), h = !dv && vgpu_is_pinned(p);
  a->type = dv ? cudaMemoryTypeDevice : h ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  if (dv || h)
    a->devicePointer = (void *)p;
  if (!dv)
    a->hostPointer = (void *)p;
  a->device = vgpu_current_device(-1);
  return 0;
}
EXPORT E cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k) {
  vgpu_copy(d, s, n);
  return 0;
}
EXPORT E cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st) {
  if (!vgpu_launch(st, "memcpy"))
    vgpu_copy(d, s, n);
  return 0;
}
EXPORT E cudaMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, cudaStream_t st) {
  return cudaMemcpyAsync(d, s, n, 3, st);
}
EXPORT E cudaMemcpyPeer(void *d, int dd, const void *s, int sd, size_t n) {
  vgpu_copy(d, s, n);
  return 0;
}
EXPORT E cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, enum cudaMemcpyKind k,
                           cudaStream_t st) {
  if (!vgpu_launch(st, "memcpy2d"))
    for (size_t i = 0; i < h; i++)
      vgpu_copy((char *)d + i * dp, (char *)s + i * sp, w);
  return 0;
}
EXPORT E cudaMemcpy2D(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, enum cudaMemcpyKind k) {
  for (size_t i = 0; i < h; i++)
    vgpu_copy((char *)d + i * dp, (char *)s + i * sp, w);
  return 0;
}
EXPORT E cudaMemset(void *d, int v, size_t n) {
  vgpu_set(d, v, n);
  return 0;
}
EXPORT E cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st) {
  if (!vgpu_launch(st, "memset"))
    vgpu_set(d, v, n);
  return 0;
}
EXPORT E cudaGetSymbolAddress(void **p, const void *sym) {
  void *q;
  cudaMalloc(&q, 65536);
  *p = q;
  return 0;
}
EXPORT E cudaMemcpyToSymbol(const void *sym, const void *s, size_t n, size_t o, enum cudaMemcpyKind k) { return 0; }
EXPORT E cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p) {
  memset(h, 0, sizeof *h);
  memcpy(h, &p, sizeof p);
  return 0;
}
EXPORT E cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned f) { return cudaMalloc(p, 1 << 26); }
