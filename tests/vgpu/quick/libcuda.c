/* The quick stand-in for libcuda.so.1: what unmodified Triton and baker's probe ask, with no CUDA headers. A test tool; nothing is computed.
 *
 * Environment: QUICK_CAPABILITY (90), QUICK_NAME, QUICK_CUDA (13000), QUICK_INIT (answer of cuInit, 0). Numbers are those of NVIDIA's public cuda.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS 0
#define INVALID_IMAGE 200
#define NO_BINARY_FOR_GPU 209

typedef int result;

static int setting(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}
static int capability(void) { return setting("QUICK_CAPABILITY", 90); }

/* baker tells every stand-in by this symbol. */
const char *vgpu_device(void) { return "quick"; }

result cuInit(unsigned flags) { return setting("QUICK_INIT", SUCCESS); }
result cuDriverGetVersion(int *version) { *version = setting("QUICK_CUDA", 13000); return SUCCESS; }
result cuDeviceGetCount(int *count) { *count = 1; return SUCCESS; }
result cuDeviceGet(int *device, int index) { *device = index; return SUCCESS; }
result cuDeviceGetName(char *text, int size, int device) {
  const char *name = getenv("QUICK_NAME");
  snprintf(text, size, "%s", name ? name : "NVIDIA H100 80GB HBM3");
  return SUCCESS;
}
result cuDeviceGetUuid_v2(char *uuid, int device) {
  for (int i = 0; i < 16; i++)
    uuid[i] = 0x42;
  return SUCCESS;
}
result cuDeviceTotalMem_v2(size_t *size, int device) { *size = (size_t)80 << 30; return SUCCESS; }

result cuDeviceGetAttribute(int *value, int attribute, int device) {
  int cc = capability();
  switch (attribute) {
  case 10: *value = 32; break;                                                  /* warp size */
  case 12: *value = 65536; break;                                               /* registers per block */
  case 16: *value = 132; break;                                                 /* multiprocessors */
  case 75: *value = cc / 10; break;                                             /* capability, major */
  case 76: *value = cc % 10; break;                                             /* capability, minor */
  case 81: *value = 228 * 1024; break;                                          /* shared memory per multiprocessor */
  case 97: *value = (cc == 80 ? 163 : cc == 120 ? 99 : 227) * 1024; break;      /* shared memory per block, opt-in */
  case 13: *value = 1980000; break;                                             /* clock, kHz */
  case 36: *value = 2619000; break;                                             /* memory clock, kHz */
  case 37: *value = 5120; break;                                                /* bus width, bits */
  default: *value = 0;
  }
  return SUCCESS;
}

result cuCtxGetCurrent(void **context) { *context = (void *)0x10; return SUCCESS; }
result cuCtxGetDevice(int *device) { *device = 0; return SUCCESS; }
result cuCtxSetCurrent(void *context) { return SUCCESS; }
result cuCtxGetLimit(size_t *value, int limit) { *value = 1 << 20; return SUCCESS; }
result cuCtxSetLimit(int limit, size_t value) { return SUCCESS; }
result cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)0x10; return SUCCESS; }

/* A cubin is opened as far as its SM number: bits 0-7 of e_flags below ABI version 8, then bits 8-15. ABI version 8 is refused by a driver of CUDA 12
 * when the GPU is older than SM 100, for which only the ptxas of CUDA 13 writes it: an assumption of this stand-in, no driver has been asked. */
result cuModuleLoadData(void **module, const void *image) {
  const unsigned char *bytes = image;
  unsigned flags;
  if (memcmp(bytes, "\177ELF", 4)) return INVALID_IMAGE;
  memcpy(&flags, bytes + 48, sizeof flags);
  int sm = bytes[8] >= 8 ? (flags >> 8) & 0xff : flags & 0xff;
  if (sm != capability()) return NO_BINARY_FOR_GPU;
  if (bytes[8] >= 8 && sm < 100 && setting("QUICK_CUDA", 13000) < 13000) return INVALID_IMAGE;
  *module = (void *)0x20;
  return SUCCESS;
}
result cuModuleUnload(void *module) { return SUCCESS; }
result cuModuleGetFunction(void **function, void *module, const char *name) { *function = (void *)0x30; return SUCCESS; }
result cuFuncGetAttribute(int *value, int attribute, void *function) { *value = attribute == 0 ? 1024 : 32; return SUCCESS; }
result cuFuncSetAttribute(void *function, int attribute, int value) { return SUCCESS; }
result cuFuncSetCacheConfig(void *function, int config) { return SUCCESS; }
result cuGetErrorString(result error, const char **text) {
  *text = error == NO_BINARY_FOR_GPU ? "no kernel image is available for execution on the device" : error == INVALID_IMAGE ? "device kernel image is invalid" : "error";
  return SUCCESS;
}
result cuLaunchKernelEx(void *config, void *function, void **arguments, void **extra) { return SUCCESS; }
result cuOccupancyMaxActiveClusters(int *count, void *function, void *config) { *count = 1; return SUCCESS; }
result cuPointerGetAttribute(void *value, int attribute, unsigned long pointer) { *(unsigned long *)value = pointer; return SUCCESS; }
result cuPointerGetAttributes(unsigned count, int *attributes, void **values, unsigned long pointer) { return SUCCESS; }
result cuStreamIsCapturing(void *stream, int *status) { *status = 0; return SUCCESS; }
result cuTensorMapEncodeTiled(void) { return SUCCESS; }
result cuTensorMapEncodeIm2col(void) { return SUCCESS; }
