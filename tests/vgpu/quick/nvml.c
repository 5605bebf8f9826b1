/* The quick stand-in for libnvidia-ml.so.1: the driver's version (QUICK_DRIVER), and who computes (QUICK_PROCESSES). */
#include <stdio.h>
#include <stdlib.h>

int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  const char *version = getenv("QUICK_DRIVER");
  snprintf(text, size, "%s", version ? version : "580.95.05");
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = (void *)1;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos) {
  const char *text = getenv("QUICK_PROCESSES");
  *count = text ? atoi(text) : 0;
  return *count ? 7 : 0; /* NVML_ERROR_INSUFFICIENT_SIZE: the count is told all the same */
}
