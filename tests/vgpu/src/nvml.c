/* Stand-in libnvidia-ml.so.1: the queries vLLM, torch and FlashInfer make; the rest answers "not supported". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vgpu.h"

typedef void *H;
EXPORT long vgpu_nvml(const char *n) {
  vgpu_log(1, "NVML %s: not supported", n);
  return 3;
}
static int ix(H h) { return (int)(size_t)h - 1; }
EXPORT int nvmlInit_v2(void) { return 0; }
EXPORT int nvmlInitWithFlags(unsigned f) { return 0; }
EXPORT int nvmlShutdown(void) { return 0; }
EXPORT const char *nvmlErrorString(int e) { return e == 3 ? "Not Supported" : e ? "stand-in error" : "Success"; }
EXPORT int nvmlSystemGetDriverVersion(char *s, unsigned n) {
  snprintf(s, n, "%s", vgpu_driver_version());
  return 0;
}
EXPORT int nvmlSystemGetNVMLVersion(char *s, unsigned n) {
  snprintf(s, n, "13.%s", vgpu_driver_version());
  return 0;
}
EXPORT int nvmlSystemGetCudaDriverVersion(int *v) {
  *v = vgpu_cuda_version();
  return 0;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *v) {
  *v = vgpu_cuda_version();
  return 0;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned *n) {
  *n = vgpu_all();
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, H *h) {
  if ((int)i >= vgpu_all())
    return 2;
  *h = (H)(size_t)(i + 1);
  return 0;
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *u, H *h) {
  *h = (H)1;
  return 0;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *u, H *h) {
  *h = (H)1;
  return 0;
}
EXPORT int nvmlDeviceGetIndex(H h, unsigned *i) {
  *i = ix(h);
  return 0;
}
EXPORT int nvmlDeviceGetName(H h, char *s, unsigned n) {
  snprintf(s, n, "%s", vgpu_device()->name);
  return 0;
}
EXPORT int nvmlDeviceGetUUID(H h, char *s, unsigned n) {
  snprintf(s, n, "GPU-42424242-4242-4242-4242-4242424242%02x", ix(h));
  return 0;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(H h, int *a, int *b) {
  *a = vgpu_device()->capability / 10;
  *b = vgpu_device()->capability % 10;
  return 0;
}
EXPORT int nvmlDeviceGetMemoryInfo(H h, unsigned long long *m) {
  m[0] = vgpu_total();
  m[2] = vgpu_used() + DRIVER_BYTES;
  m[1] = m[0] - m[2];
  return 0;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(H h, char *m) {
  unsigned long long *q = (void *)(m + 8);
  q[0] = vgpu_total();
  q[1] = DRIVER_BYTES;
  q[3] = vgpu_used() + q[1];
  q[2] = q[0] - q[3];
  return 0;
}
EXPORT int nvmlDeviceGetNumGpuCores(H h, unsigned *n) {
  *n = vgpu_device()->sms * 128;
  return 0;
}
EXPORT int nvmlDeviceGetMemoryBusWidth(H h, unsigned *n) {
  *n = vgpu_device()->bus_bits;
  return 0;
}
EXPORT int nvmlDeviceGetMigMode(H h, unsigned *c, unsigned *p) {
  *c = *p = 0;
  return 0;
}
EXPORT int nvmlDeviceGetPciInfo_v3(H h, char *p) {
  memset(p, 0, 68);
  snprintf(p, 16, "0000:%02x:00.0", 0x10 + ix(h));
  snprintf(p + 36, 32, "00000000:%02X:00.0", 0x10 + ix(h));
  return 0;
}
EXPORT int nvmlDeviceGetP2PStatus(H a, H b, int i, int *s) {
  *s = 0;
  return 0;
}
