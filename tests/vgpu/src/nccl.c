/* Stand-in libnccl.so.2: communicators exist, collectives do nothing. */
#include <stdlib.h>
#include <string.h>
#include "vgpu.h"

typedef struct {
  char b[128];
} id_t_;
typedef struct {
  int n, rank;
} comm;
EXPORT long vgpu_nccl(const char *n) {
  vgpu_log(3, "nccl %s", n);
  return 0;
}
EXPORT int ncclGetVersion(int *v) {
  *v = 23007;
  return 0;
}
EXPORT int ncclGetUniqueId(id_t_ *i) {
  memset(i, 7, sizeof *i);
  return 0;
}
EXPORT const char *ncclGetErrorString(int e) { return e ? "stand-in" : "no error"; }
EXPORT const char *ncclGetLastError(void *c) { return ""; }
EXPORT int ncclCommInitRank(comm **c, int n, id_t_ i, int r) {
  *c = calloc(1, sizeof **c);
  (*c)->n = n;
  (*c)->rank = r;
  return 0;
}
EXPORT int ncclCommInitRankConfig(comm **c, int n, id_t_ i, int r, void *cfg) { return ncclCommInitRank(c, n, i, r); }
EXPORT int ncclCommInitRankScalable(comm **c, int n, int r, int k, id_t_ *i, void *cfg) {
  return ncclCommInitRank(c, n, *i, r);
}
EXPORT int ncclCommSplit(comm *p, int col, int key, comm **c, void *cfg) {
  *c = calloc(1, sizeof **c);
  **c = *p;
  return 0;
}
EXPORT int ncclCommGetAsyncError(void *c, int *e) {
  *e = 0;
  return 0;
}
EXPORT int ncclCommCount(comm *c, int *n) {
  *n = c->n;
  return 0;
}
EXPORT int ncclCommUserRank(comm *c, int *r) {
  *r = c->rank;
  return 0;
}
EXPORT int ncclCommCuDevice(comm *c, int *d) {
  *d = 0;
  return 0;
}
