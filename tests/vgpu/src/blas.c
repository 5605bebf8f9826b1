/* Stand-in libcublas / libcublasLt: every routine succeeds and does nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "vgpu.h"

EXPORT long vgpu_blas(const char *n) {
  vgpu_log(3, "blas %s", n);
  return 0;
}
#ifdef LT
EXPORT int cublasLtCreate(void **h) {
  *h = malloc(8);
  return 0;
}
EXPORT size_t cublasLtGetVersion(void) { return 130101; }
EXPORT size_t cublasLtGetCudartVersion(void) { return 13000; }
EXPORT const char *cublasLtGetStatusString(int s) { return "stand-in"; }
EXPORT int cublasLtMatmulDescCreate(void **h) {
  *h = calloc(1, 256);
  return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(void **h) {
  *h = calloc(1, 256);
  return 0;
}
EXPORT int cublasLtMatmulPreferenceCreate(void **h) {
  *h = calloc(1, 256);
  return 0;
}
EXPORT int cublasLtMatrixTransformDescCreate(void **h) {
  *h = calloc(1, 256);
  return 0;
}
EXPORT int cublasLtMatmulDescDestroy(void *h) {
  free(h);
  return 0;
}
EXPORT int cublasLtMatrixLayoutDestroy(void *h) {
  free(h);
  return 0;
}
EXPORT int cublasLtMatmulPreferenceDestroy(void *h) {
  free(h);
  return 0;
}
typedef struct {
  uint64_t algo[8];
  size_t ws;
  int state;
  float waves;
  int rsv[4];
} heur;
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *e, void *p, int want,
                                          heur *r, int *got) {
  memset(r, 0, sizeof *r);
  r->waves = 1.f;
  *got = want > 0;
  return 0;
}
EXPORT int cublasLtMatmulAlgoCheck(void *h, void *d, void *a, void *b, void *c, void *e, void *al, heur *r) {
  memset(r, 0, sizeof *r);
  r->waves = 1.f;
  return 0;
}
#else
EXPORT int cublasCreate_v2(void **h) {
  *h = calloc(1, 64);
  return 0;
}
EXPORT int cublasDestroy_v2(void *h) {
  free(h);
  return 0;
}
EXPORT int cublasGetVersion_v2(void *h, int *v) {
  *v = 130101;
  return 0;
}
EXPORT int cublasGetPointerMode_v2(void *h, int *m) {
  *m = 0;
  return 0;
}
EXPORT int cublasGetMathMode(void *h, int *m) {
  *m = 0;
  return 0;
}
EXPORT const char *cublasGetStatusString(int s) { return "stand-in"; }
#endif
