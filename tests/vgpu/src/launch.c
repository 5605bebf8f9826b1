/* Launches: nothing runs. The few kernels whose result the host reads are imitated. */
#define _GNU_SOURCE
#include <cuda.h>
#include <string.h>
#include "vgpu.h"

#define LARGEST_FILL ((size_t)1 << 22)

/* Bytes of an element by its mangled C++ type; 0: another type. */
static int element_size(const char *type) {
  if (strchr("bah", *type))
    return 1;
  if (strchr("st", *type))
    return 2;
  if (strchr("if", *type))
    return 4;
  if (strchr("ld", *type))
    return 8;
  return strstr(type, "c108BFloat16") || strstr(type, "c104Half") ? 2 : 0;
}

/* torch's constant fill (`ones`, `full`): (count, functor with the value, pointer). */
static void fill(const char *type, void **arguments) {
  int count = *(int *)arguments[0], size = element_size(type);
  char *to = *(char **)arguments[2];
  if (!size || count <= 0 || (size_t)count * size > LARGEST_FILL || !vgpu_is_device_memory(to, NULL, NULL))
    return;
  for (int i = 0; i < count; i++)
    memcpy(to + (size_t)i * size, arguments[1], size);
}

/* vLLM's "how many tokens were sampled, how many rejected": without it the scheduler would read noise. */
static void sampled(unsigned requests, void **arguments) {
  int *sampled = *(int **)arguments[0], *rejected = *(int **)arguments[1], *length = *(int **)arguments[2];
  int *offsets = *(int **)arguments[3], *index = *(int **)arguments[4], *prefill = *(int **)arguments[5];
  for (unsigned i = 0; i < requests; i++) {
    if (!vgpu_is_device_memory(prefill + index[i], NULL, NULL) || !vgpu_is_device_memory(sampled + i, NULL, NULL))
      continue;
    int chunked = length[i] < prefill[index[i]];
    if (chunked)
      sampled[i] = 0;
    rejected[i] = chunked ? 0 : offsets[i + 1] - offsets[i] - sampled[i];
  }
}

void vgpu_emulate(const char *name, unsigned grid_x, void **arguments) {
  const char *functor;
  if (!name || !arguments)
    return;
  if (strstr(name, "vectorized_elementwise_kernel") && (functor = strstr(name, "11FillFunctorI")))
    fill(functor + 14, arguments);
  else if (!strcmp(name, "_get_num_sampled_and_rejected_kernel"))
    sampled(grid_x, arguments);
}

static const char *name_of(CUfunction f) {
  const char *name = NULL;
  cuFuncGetName(&name, f);
  return name;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments,
                               void **extra) {
  if (!vgpu_launch(stream, name_of(f)))
    vgpu_emulate(name_of(f), grid_x, arguments);
  return 0;
}
EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                          CUstream stream, void **arguments) {
  vgpu_launch(stream, name_of(f));
  return 0;
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **arguments, void **extra) {
  if (!vgpu_launch(config->hStream, name_of(f)))
    vgpu_emulate(name_of(f), config->gridDimX, arguments);
  return 0;
}
EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn call, void *data) {
  if (!vgpu_launch(stream, "host function"))
    call(data);
  return 0;
}
EXPORT CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction f, const CUlaunchConfig *config) {
  *count = vgpu_device()->sms / 2;
  return 0;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction f, int threads, size_t shared) {
  int by_threads = 2048 / (threads ? threads : 1);
  *count = by_threads < 1 ? 1 : by_threads > 32 ? 32 : by_threads;
  if (shared && (int)(vgpu_device()->shared_sm / shared) < *count)
    *count = vgpu_device()->shared_sm / shared;
  return 0;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, CUfunction f, int threads,
                                                                     size_t shared, unsigned flags) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(count, f, threads, shared);
}
