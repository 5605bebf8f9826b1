/* Stand-in libcudart: kernels that are compiled into host libraries, launches, libraries, entry points. */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vgpu.h"
#include "runtime.h"

/* kernels compiled into host libraries */
typedef struct {
  const char *host, *name;
  int dyn;
} ker;
static ker *tab;
static unsigned cap, cnt;
static ker *slot(const char *h) {
  for (unsigned i = ((uintptr_t)h >> 4) * 2654435761u & (cap - 1);; i = (i + 1) & (cap - 1))
    if (!tab[i].host || tab[i].host == h)
      return tab + i;
}
static ker *find(const void *h) {
  ker *k = cap ? slot(h) : 0;
  return k && k->host ? k : 0;
}
static const char *kname(const void *h) {
  ker *k = find(h);
  return k ? k->name : "?";
}
EXPORT void **__cudaRegisterFatBinary(void *f) { return calloc(1, 16); }
EXPORT void __cudaRegisterFatBinaryEnd(void **h) {}
EXPORT void __cudaUnregisterFatBinary(void **h) {}
EXPORT char __cudaInitModule(void **h) { return 1; }
EXPORT void __cudaRegisterVar(void **h, char *hv, char *da, const char *dn, int e, size_t n, int c, int g) {}
EXPORT void __cudaRegisterFunction(void **h, const char *hf, char *df, const char *dn, int tl, void *a, void *b,
                                   void *c, void *d, int *w) {
  if (cnt * 2 >= cap) {
    ker *o = tab;
    unsigned oc = cap;
    cap = cap ? cap * 2 : 1 << 16;
    tab = calloc(cap, sizeof *tab);
    for (unsigned i = 0; i < oc; i++)
      if (o[i].host)
        *slot(o[i].host) = o[i];
    free(o);
  }
  ker *k = slot(hf);
  if (!k->host)
    cnt++;
  k->host = hf;
  k->name = dn;
}
static __thread struct {
  dim3 g, b;
  size_t s;
  void *st;
} cfg[8];
static __thread int ncfg;
EXPORT unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t s, struct CUstream_st *st) {
  if (ncfg < 8) {
    cfg[ncfg].g = g;
    cfg[ncfg].b = b;
    cfg[ncfg].s = s;
    cfg[ncfg++].st = st;
  }
  return 0;
}
EXPORT E __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *s, void *st) {
  if (!ncfg)
    return 1;
  ncfg--;
  *g = cfg[ncfg].g;
  *b = cfg[ncfg].b;
  *s = cfg[ncfg].s;
  *(void **)st = cfg[ncfg].st;
  return 0;
}
EXPORT E __cudaGetKernel(cudaKernel_t *k, const void *e) {
  *k = (cudaKernel_t)e;
  return 0;
}
EXPORT E cudaGetKernel(cudaKernel_t *k, const void *e) {
  *k = (cudaKernel_t)e;
  return 0;
}
EXPORT E __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void **a, size_t s, cudaStream_t st) {
  const char *n = kname(k);
  if (!vgpu_launch(st, n))
    vgpu_emulate(n, g.x, a);
  return 0;
}
EXPORT E cudaLaunchKernel(const void *k, dim3 g, dim3 b, void **a, size_t s, cudaStream_t st) {
  const char *n = kname(k);
  if (!vgpu_launch(st, n))
    vgpu_emulate(n, g.x, a);
  return 0;
}
EXPORT E cudaLaunchCooperativeKernel(const void *k, dim3 g, dim3 b, void **a, size_t s, cudaStream_t st) {
  const char *n = kname(k);
  if (!vgpu_launch(st, n))
    vgpu_emulate(n, g.x, a);
  return 0;
}
EXPORT E cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *k, void **a) {
  vgpu_launch(c->stream, kname(k));
  return 0;
}
EXPORT E cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *k) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 64;
  a->ptxVersion = a->binaryVersion = vgpu_device()->capability;
  a->maxDynamicSharedSizeBytes = 49152;
  return 0;
}
EXPORT E cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *k, int b, size_t d) {
  R(cuOccupancyMaxActiveBlocksPerMultiprocessor(n, 0, b, d));
}
EXPORT E cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *k, int b, size_t d, unsigned f) {
  R(cuOccupancyMaxActiveBlocksPerMultiprocessor(n, 0, b, d));
}
EXPORT E cudaOccupancyMaxActiveClusters(int *n, const void *k, const cudaLaunchConfig_t *c) {
  *n = vgpu_device()->sms / 2;
  return 0;
}
EXPORT E cudaLibraryLoadData(cudaLibrary_t *l, const void *c, enum cudaJitOption *o, void **v, unsigned n,
                             enum cudaLibraryOption *lo, void **lv, unsigned ln) {
  R(cuLibraryLoadData((CUlibrary *)l, c, 0, 0, 0, 0, 0, 0));
}
EXPORT E cudaLibraryGetKernel(cudaKernel_t *k, cudaLibrary_t l, const char *n) {
  R(cuLibraryGetKernel((CUkernel *)k, (CUlibrary)l, n));
}
EXPORT E cudaLibraryLoadFromFile(cudaLibrary_t *l, const char *c, enum cudaJitOption *o, void **v, unsigned n,
                                 enum cudaLibraryOption *lo, void **lv, unsigned ln) {
  R(cuModuleLoad((CUmodule *)l, c));
}
EXPORT E cudaLibraryGetKernelCount(unsigned *n, cudaLibrary_t l) { R(cuLibraryGetKernelCount(n, (CUlibrary)l)); }
EXPORT E cudaLibraryEnumerateKernels(cudaKernel_t *k, unsigned n, cudaLibrary_t l) {
  R(cuLibraryEnumerateKernels((CUkernel *)k, n, (CUlibrary)l));
}
EXPORT E cudaGetDriverEntryPointByVersion(const char *n, void **f, unsigned v, unsigned long long fl,
                                          enum cudaDriverEntryPointQueryResult *q) {
  CUdriverProcAddressQueryResult s;
  CUresult r = cuGetProcAddress_v2(n, f, v, 0, &s);
  if (q)
    *q = r ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return 0;
}
EXPORT E cudaGetDriverEntryPoint(const char *n, void **f, unsigned long long fl,
                                 enum cudaDriverEntryPointQueryResult *q) {
  return cudaGetDriverEntryPointByVersion(n, f, 13000, fl, q);
}
