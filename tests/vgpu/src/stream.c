/* Streams, events, capture and graphs: enough bookkeeping that "captured" graphs have the right number of nodes. Event times are a constant. */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include "vgpu.h"

#define STREAMS 65536
#define SPECIAL 16    /* handles below this are CUDA's default streams */
#define EVENT_MS 10.f /* constant, so that autotuning is deterministic */

typedef struct {
  size_t nodes;
} graph;
typedef struct {
  int priority;
  uint64_t capture;
  graph *into;
} stream;
typedef struct {
  uint64_t capture;
  graph *into;
} event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t captures;
static stream *streams[STREAMS];
static int stream_count;

static stream *of(void *handle) {
  static stream default_stream;
  return (uintptr_t)handle < SPECIAL ? &default_stream : handle;
}

int vgpu_launch(void *handle, const char *name) {
  stream *s = of(handle);
  vgpu_log(3, "%s %s", s->capture ? "capture" : "launch", name ? name : "?");
  if (!s->capture)
    return 0;
  s->into->nodes++;
  return 1;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
  stream *s = calloc(1, sizeof *s);
  s->priority = priority;
  *out = (CUstream)s;
  pthread_mutex_lock(&lock);
  if (stream_count < STREAMS)
    streams[stream_count++] = s;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
EXPORT CUresult cuStreamGetPriority(CUstream s, int *priority) {
  *priority = of(s)->priority;
  return 0;
}
EXPORT CUresult cuStreamGetFlags(CUstream s, unsigned *flags) {
  *flags = CU_STREAM_NON_BLOCKING;
  return 0;
}
EXPORT CUresult cuStreamGetCtx(CUstream s, CUcontext *context) {
  *context = CONTEXT;
  return 0;
}
EXPORT CUresult cuStreamGetDevice(CUstream s, CUdevice *device) {
  *device = vgpu_current_device(-1);
  return 0;
}
EXPORT CUresult cuStreamGetId(CUstream s, unsigned long long *id) {
  *id = (uintptr_t)s;
  return 0;
}
EXPORT CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status) {
  *status = of(s)->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return 0;
}
EXPORT CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode) {
  if ((uintptr_t)s < SPECIAL)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  of(s)->capture = __sync_add_and_fetch(&captures, 1);
  of(s)->into = calloc(1, sizeof(graph));
  return 0;
}
EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream s, CUgraph into, const CUgraphNode *nodes,
                                            const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
  of(s)->capture = __sync_add_and_fetch(&captures, 1);
  of(s)->into = (graph *)into;
  return 0;
}
/* Other streams joined by waiting for an event of this capture; all leave it together. */
EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *out) {
  uint64_t id = of(s)->capture;
  if (!id)
    return CUDA_ERROR_ILLEGAL_STATE;
  *out = (CUgraph)of(s)->into;
  for (int i = 0; i < stream_count; i++) {
    if (streams[i]->capture != id)
      continue;
    streams[i]->capture = 0;
    streams[i]->into = NULL;
  }
  return 0;
}
EXPORT CUresult cuStreamGetCaptureInfo(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *into,
                                       const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count) {
  stream *at = of(s);
  if (status)
    *status = at->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  if (id)
    *id = at->capture;
  if (into)
    *into = (CUgraph)at->into;
  if (nodes)
    *nodes = NULL;
  if (edges)
    *edges = NULL;
  if (count)
    *count = 0;
  return 0;
}
EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  static __thread CUstreamCaptureMode current;
  CUstreamCaptureMode before = current;
  current = *mode;
  *mode = before;
  return 0;
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned flags) {
  *out = calloc(1, sizeof(event));
  return 0;
}
EXPORT CUresult cuEventDestroy(CUevent e) {
  free(e);
  return 0;
}
EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
  ((event *)e)->capture = of(s)->capture;
  ((event *)e)->into = of(s)->into;
  return 0;
}
EXPORT CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned flags) { return cuEventRecord(e, s); }
EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
  event *from = (event *)e;
  if (!from->capture || (uintptr_t)s < SPECIAL)
    return 0;
  of(s)->capture = from->capture;
  of(s)->into = from->into;
  return 0;
}
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  const char *text = vgpu_setting("VGPU_EVENT_MS");
  *ms = text ? (float)atof(text) : EVENT_MS;
  return 0;
}

EXPORT CUresult cuGraphCreate(CUgraph *out, unsigned flags) {
  *out = calloc(1, sizeof(graph));
  return 0;
}
EXPORT CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *count) {
  size_t all = ((graph *)g)->nodes;
  for (size_t i = 0; nodes && i < *count && i < all; i++)
    nodes[i] = (CUgraphNode)(i + 1);
  *count = all;
  return 0;
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags) {
  *out = (CUgraphExec)0x5000;
  return 0;
}
EXPORT CUresult cuGraphLaunch(CUgraphExec g, CUstream s) {
  vgpu_log(3, "graph launch");
  return 0;
}
