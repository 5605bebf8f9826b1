/* cuGetProcAddress: which spelling of a driver function belongs to which CUDA version. The table is generated from NVIDIA's public headers. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>
#include "vgpu.h"

static const struct {
  const char *name;
  int since;
  const char *symbol;
} functions[] = {
#include "functions.h"
};

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status) {
  static void *self;
  if (!self) {
    Dl_info info;
    dladdr((void *)cuInit, &info);
    self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!self)
      self = dlopen("libcuda.so.1", RTLD_LAZY);
  }
  const char *symbol = NULL;
  int newest = 0;
  for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (strcmp(functions[i].name, name) || functions[i].since > version || functions[i].since <= newest)
      continue;
    newest = functions[i].since;
    symbol = functions[i].symbol;
  }
  *out = dlsym(self, symbol ? symbol : name);
  if (status)
    *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  vgpu_log(*out ? 4 : 1, "function %s v%d: %s%s", name, version, symbol ? symbol : name, *out ? "" : " MISSING");
  return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
#undef cuGetProcAddress
EXPORT CUresult cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
