/* Stand-in GPU: what its libraries share. A test tool; nothing is ever computed. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* One product, by public data-sheet values; bytes, kHz, bits, GiB. */
typedef struct {
  const char *key, *name;
  int capability, sms, shared_block, shared_sm, l2, bus_bits, clock_khz, memory_khz;
  double memory_gib;
} vgpu_product;

#pragma GCC visibility push(default)
const vgpu_product *vgpu_device(void); /* baker tells a stand-in by this symbol */
const char *vgpu_setting(const char *name);
int vgpu_count(void);
int vgpu_all(void);
int vgpu_cuda_version(void);
const char *vgpu_driver_version(void);
int vgpu_fault(const char *name);
size_t vgpu_total(void);
size_t vgpu_used(void);
void vgpu_log(int level, const char *format, ...);
int vgpu_current_device(int set);
int vgpu_is_device_memory(const void *p, void **base, size_t *size);
int vgpu_is_pinned(const void *p);
void vgpu_copy(void *to, const void *from, size_t size);
void vgpu_set(void *to, int value, size_t size);
int vgpu_launch(void *stream, const char *name); /* 1: recorded into a capture, 0: "ran" */
void vgpu_emulate(const char *name, unsigned grid_x, void **arguments);
#pragma GCC visibility pop

/* Inside libcuda only. */
char *vgpu_allocate(size_t size, int counted);
int vgpu_release(void *p);
void vgpu_pin(void *p, size_t size);
size_t vgpu_unpin(void *p);
size_t *vgpu_used_counter(void);

#define CONTEXT ((CUcontext)0x1000)
/* cuMemGetInfo and NVML show this much as taken by the "driver". */
#define DRIVER_BYTES ((size_t)600 << 20)
