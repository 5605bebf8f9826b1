/* Memory: one reserve of address space. Pages appear when the host really writes them, so 80 GB of "device" memory cost next to nothing. */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "vgpu.h"

#define RESERVE ((size_t)1 << 42)
#define RESERVE_AT ((void *)0x700000000000ull)
#define GRANULE ((size_t)2 << 20)
#define PINNED 65536
/* VGPU_FAULT=oom: as if another process held all but this much. */
#define OOM_LIMIT ((size_t)256 << 20)

enum { FREE, UNCOUNTED, COUNTED };
typedef struct {
  char *start;
  size_t size;
  int state;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *reserve, *reserve_top;
static block *blocks;
static int block_count, block_room;
static size_t used;
static struct {
  char *start;
  size_t size;
} pinned[PINNED];
static int pinned_count;

size_t vgpu_used(void) { return used; }
size_t *vgpu_used_counter(void) { return &used; }

static void make_reserve(void) {
  if (reserve)
    return;
  reserve = mmap(RESERVE_AT, RESERVE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserve == MAP_FAILED) {
    perror("vgpu reserve");
    abort();
  }
  reserve_top = reserve;
  madvise(reserve, RESERVE, MADV_NOHUGEPAGE);
}

static size_t limit(void) { return vgpu_fault("oom") && OOM_LIMIT < vgpu_total() ? OOM_LIMIT : vgpu_total(); }

/* Granules of 2 MiB; the first free block of the same size, else new space. NULL: over the device's memory. */
char *vgpu_allocate(size_t size, int counted) {
  size = (size + GRANULE - 1) & ~(GRANULE - 1);
  if (!size)
    size = GRANULE;
  pthread_mutex_lock(&lock);
  make_reserve();
  char *found = NULL;
  if (counted && used + size > limit()) {
    pthread_mutex_unlock(&lock);
    return NULL;
  }
  for (int i = 0; i < block_count && !found; i++) {
    if (blocks[i].state != FREE || blocks[i].size != size)
      continue;
    blocks[i].state = counted ? COUNTED : UNCOUNTED;
    found = blocks[i].start;
  }
  if (!found) {
    if (block_count == block_room) {
      block_room = block_room ? block_room * 2 : 256;
      blocks = realloc(blocks, sizeof *blocks * block_room);
    }
    found = reserve_top;
    reserve_top += size;
    blocks[block_count++] = (block){found, size, counted ? COUNTED : UNCOUNTED};
  }
  if (counted)
    used += size;
  pthread_mutex_unlock(&lock);
  return found;
}

int vgpu_release(void *p) {
  int done = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < block_count && !done; i++) {
    if (blocks[i].start != p || blocks[i].state == FREE)
      continue;
    if (blocks[i].state == COUNTED)
      used -= blocks[i].size;
    blocks[i].state = FREE;
    madvise(p, blocks[i].size, MADV_DONTNEED);
    done = 1;
  }
  pthread_mutex_unlock(&lock);
  return done;
}

int vgpu_is_device_memory(const void *p, void **base, size_t *size) {
  int found = 0;
  pthread_mutex_lock(&lock);
  if (reserve && (char *)p >= reserve && (char *)p < reserve_top) {
    for (int i = 0; i < block_count && !found; i++) {
      if ((char *)p < blocks[i].start || (char *)p >= blocks[i].start + blocks[i].size)
        continue;
      found = 1;
      if (base)
        *base = blocks[i].start;
      if (size)
        *size = blocks[i].size;
    }
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void vgpu_pin(void *p, size_t size) {
  pthread_mutex_lock(&lock);
  if (pinned_count < PINNED) {
    pinned[pinned_count].start = p;
    pinned[pinned_count++].size = size;
  }
  pthread_mutex_unlock(&lock);
}

size_t vgpu_unpin(void *p) {
  size_t size = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < pinned_count; i++) {
    if (pinned[i].start != p)
      continue;
    size = pinned[i].size;
    pinned[i] = pinned[--pinned_count];
    break;
  }
  pthread_mutex_unlock(&lock);
  return size;
}

int vgpu_is_pinned(const void *p) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < pinned_count && !found; i++)
    found = (char *)p >= pinned[i].start && (char *)p < pinned[i].start + pinned[i].size;
  pthread_mutex_unlock(&lock);
  return found;
}

void vgpu_copy(void *to, const void *from, size_t size) {
  if (size && to && from && to != from)
    memmove(to, from, size);
}

/* Large fills with zero give the pages back; large other fills of device memory are dropped, for nobody reads them. */
void vgpu_set(void *to, int value, size_t size) {
  if (size < 1 << 20 || !vgpu_is_device_memory(to, NULL, NULL)) {
    memset(to, value, size);
    return;
  }
  if (value)
    return;
  char *first = (char *)(((uintptr_t)to + 4095) & ~4095ul), *last = (char *)((uintptr_t)((char *)to + size) & ~4095ul);
  memset(to, 0, first - (char *)to);
  madvise(first, last - first, MADV_DONTNEED);
  memset(last, 0, (char *)to + size - last);
}

EXPORT CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
  *total = vgpu_total();
  size_t room = limit();
  *free_bytes = room > used + DRIVER_BYTES ? room - used - DRIVER_BYTES : 0;
  return 0;
}
EXPORT CUresult cuMemAlloc(CUdeviceptr *p, size_t size) {
  char *found = vgpu_allocate(size, 1);
  if (!found)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *p = (CUdeviceptr)found;
  return 0;
}
EXPORT CUresult cuMemAllocManaged(CUdeviceptr *p, size_t size, unsigned flags) { return cuMemAlloc(p, size); }
EXPORT CUresult cuMemAllocAsync(CUdeviceptr *p, size_t size, CUstream stream) { return cuMemAlloc(p, size); }
EXPORT CUresult cuMemFree(CUdeviceptr p) {
  return !p || vgpu_release((void *)p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream stream) { return cuMemFree(p); }
EXPORT CUresult cuMemHostAlloc(void **p, size_t size, unsigned flags) {
  size = size ? size : 1;
  *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*p == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgpu_pin(*p, size);
  return 0;
}
EXPORT CUresult cuMemAllocHost(void **p, size_t size) { return cuMemHostAlloc(p, size, 0); }
EXPORT CUresult cuMemFreeHost(void *p) {
  size_t size = vgpu_unpin(p);
  if (size)
    munmap(p, size);
  return 0;
}
EXPORT CUresult cuMemHostRegister(void *p, size_t size, unsigned flags) {
  vgpu_pin(p, size);
  return 0;
}
EXPORT CUresult cuMemHostUnregister(void *p) {
  vgpu_unpin(p);
  return 0;
}
EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *p, unsigned flags) {
  *device = (CUdeviceptr)p;
  return 0;
}
EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr p) {
  void *start;
  size_t bytes;
  if (!vgpu_is_device_memory((void *)p, &start, &bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (base)
    *base = (CUdeviceptr)start;
  if (size)
    *size = bytes;
  return 0;
}
EXPORT CUresult cuMemAddressReserve(CUdeviceptr *p, size_t size, size_t alignment, CUdeviceptr at,
                                    unsigned long long flags) {
  *p = (CUdeviceptr)vgpu_allocate(size, 0);
  return 0;
}
EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
  vgpu_release((void *)p);
  return 0;
}

/* Physical allocations of the virtual memory interface only count. */
EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                            unsigned long long flags) {
  if (used + size > limit())
    return CUDA_ERROR_OUT_OF_MEMORY;
  size_t *kept = malloc(sizeof *kept);
  *kept = size;
  __sync_fetch_and_add(&used, size);
  *handle = (uintptr_t)kept;
  return 0;
}
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  size_t *kept = (void *)handle;
  __sync_fetch_and_sub(&used, *kept);
  free(kept);
  return 0;
}
EXPORT CUresult cuMemGetAllocationGranularity(size_t *size, const CUmemAllocationProp *properties,
                                              CUmemAllocationGranularity_flags option) {
  *size = GRANULE;
  return 0;
}

static CUresult pointer_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr p) {
  void *base = NULL;
  size_t size = 0;
  int device = vgpu_is_device_memory((void *)p, &base, &size), host = !device && vgpu_is_pinned((void *)p);
  switch ((int)attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = CONTEXT; break;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(unsigned *)value = device ? CU_MEMORYTYPE_DEVICE : host ? CU_MEMORYTYPE_HOST : 0;
    return device || host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    if (!device && !host)
      return CUDA_ERROR_INVALID_VALUE;
    *(CUdeviceptr *)value = p;
    break;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    if (!host)
      return CUDA_ERROR_INVALID_VALUE;
    *(void **)value = (void *)p;
    break;
  case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)value = base ? (uintptr_t)base : p; break;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(void **)value = base; break;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = size; break;
  default: *(int *)value = 0;
  }
  return 0;
}
EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr p) {
  return pointer_attribute(value, attribute, p);
}
EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr p) {
  for (unsigned i = 0; i < count; i++)
    pointer_attribute(values[i], attributes[i], p);
  return 0;
}
