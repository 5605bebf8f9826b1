/* The quick stand-in for libnvidia-ml.so.1: the driver's version (QUICK_DRIVER). */
#include <stdio.h>
#include <stdlib.h>

int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  const char *version = getenv("QUICK_DRIVER");
  snprintf(text, size, "%s", version ? version : "580.95.05");
  return 0;
}
