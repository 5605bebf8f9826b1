/* Stand-in libcudart: streams, events, capture, graphs. */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vgpu.h"
#include "runtime.h"

/* streams, events, capture, graphs */
EXPORT E cudaStreamCreate(cudaStream_t *s) { R(cuStreamCreate((CUstream *)s, 0)); }
EXPORT E cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) { R(cuStreamCreate((CUstream *)s, f)); }
EXPORT E cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) {
  R(cuStreamCreateWithPriority((CUstream *)s, f, p));
}
EXPORT E cudaStreamGetPriority(cudaStream_t s, int *p) { R(cuStreamGetPriority(S(s), p)); }
EXPORT E cudaStreamGetFlags(cudaStream_t s, unsigned *f) {
  *f = 1;
  return 0;
}
EXPORT E cudaStreamGetId(cudaStream_t s, unsigned long long *i) {
  *i = (uintptr_t)s;
  return 0;
}
EXPORT E cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) { R(cuStreamWaitEvent(S(s), (CUevent)e, f)); }
EXPORT E cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *c) {
  R(cuStreamIsCapturing(S(s), (CUstreamCaptureStatus *)c));
}
EXPORT E cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
  R(cuStreamBeginCapture(S(s), (CUstreamCaptureMode)m));
}
EXPORT E cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t *d,
                                       const cudaGraphEdgeData *e, size_t n, enum cudaStreamCaptureMode m) {
  R(cuStreamBeginCaptureToGraph(S(s), (CUgraph)g, 0, 0, 0, 0));
}
EXPORT E cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) { R(cuStreamEndCapture(S(s), (CUgraph *)g)); }
EXPORT E cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *c, unsigned long long *id,
                                  cudaGraph_t *g, const cudaGraphNode_t **d, const cudaGraphEdgeData **e, size_t *n) {
  R(cuStreamGetCaptureInfo(S(s), (CUstreamCaptureStatus *)c, (cuuint64_t *)id, (CUgraph *)g, (void *)d, (void *)e, n));
}
EXPORT E cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *m) {
  R(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)m));
}
EXPORT E cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void *u, unsigned fl) {
  f(s, 0, u);
  return 0;
}
EXPORT E cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *u) {
  if (!vgpu_launch(s, "hostfn"))
    f(u);
  return 0;
}
EXPORT E cudaEventCreate(cudaEvent_t *e) { R(cuEventCreate((CUevent *)e, 0)); }
EXPORT E cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) { R(cuEventCreate((CUevent *)e, f)); }
EXPORT E cudaEventDestroy(cudaEvent_t e) { R(cuEventDestroy((CUevent)e)); }
EXPORT E cudaEventRecord(cudaEvent_t e, cudaStream_t s) { R(cuEventRecord((CUevent)e, S(s))); }
EXPORT E cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { R(cuEventRecord((CUevent)e, S(s))); }
EXPORT E cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  R(cuEventElapsedTime(ms, (CUevent)a, (CUevent)b));
}
EXPORT E cudaGraphCreate(cudaGraph_t *g, unsigned f) { R(cuGraphCreate((CUgraph *)g, f)); }
EXPORT E cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *n, size_t *k) {
  R(cuGraphGetNodes((CUgraph)g, (CUgraphNode *)n, k));
}
EXPORT E cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long f) {
  *x = (cudaGraphExec_t)0x5000;
  return 0;
}
EXPORT E cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long f) {
  *x = (cudaGraphExec_t)0x5000;
  return 0;
}
EXPORT E cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) { R(cuGraphLaunch((CUgraphExec)x, S(s))); }
EXPORT E cudaDeviceGetDefaultMemPool(cudaMemPool_t *m, int d) {
  *m = (cudaMemPool_t)0x6000;
  return 0;
}
EXPORT E cudaMemPoolGetAttribute(cudaMemPool_t m, enum cudaMemPoolAttr a, void *v) {
  *(uint64_t *)v = 0;
  return 0;
}
