/* Which GPU this is: products, device queries, contexts, error texts. */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vgpu.h"

static const vgpu_product products[] = {
    {"a100", "NVIDIA A100-SXM4-80GB", 80, 108, 166912, 167936, 40 << 20, 5120, 1410000, 1593000, 79.25},
    {"l40s", "NVIDIA L40S", 89, 142, 101376, 102400, 96 << 20, 384, 2520000, 9001000, 44.40},
    {"h100", "NVIDIA H100 80GB HBM3", 90, 132, 232448, 233472, 50 << 20, 5120, 1980000, 2619000, 79.18},
    {"h100pcie", "NVIDIA H100 PCIe", 90, 114, 232448, 233472, 50 << 20, 5120, 1755000, 1593000, 79.18},
    {"h100mig", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 90, 16, 232448, 233472, 50 << 20, 5120, 1980000, 2619000, 9.75},
    {"h200", "NVIDIA H200", 90, 132, 232448, 233472, 60 << 20, 6144, 1980000, 3201000, 139.80},
    {"b200", "NVIDIA B200", 100, 148, 232448, 233472, 126 << 20, 8192, 1965000, 3996000, 178.35},
    {"rtx6000b", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 120, 188, 101376, 102400, 128 << 20, 512, 2430000,
     12481000, 94.97},
};
#define DEFAULT_PRODUCT 2

const vgpu_product *vgpu_device(void) {
  static const vgpu_product *chosen;
  if (chosen)
    return chosen;
  const char *key = vgpu_setting("VGPU");
  const vgpu_product *found = &products[DEFAULT_PRODUCT];
  for (unsigned i = 0; key && i < sizeof products / sizeof *products; i++)
    if (!strcmp(key, products[i].key))
      found = &products[i];
  return chosen = found;
}

static __thread int current_device;
int vgpu_current_device(int set) {
  if (set >= 0)
    current_device = set;
  return current_device;
}

EXPORT CUresult cuInit(unsigned flags) {
  if (vgpu_fault("hang"))
    for (;;)
      pause();
  if (vgpu_fault("error803"))
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  if (vgpu_fault("error804"))
    return CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE;
  return vgpu_fault("nodevice") || !vgpu_count() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
EXPORT CUresult cuDriverGetVersion(int *version) {
  *version = vgpu_cuda_version();
  return 0;
}
EXPORT CUresult cuDeviceGetCount(int *count) {
  *count = vgpu_count();
  return 0;
}
EXPORT CUresult cuDeviceGet(CUdevice *device, int i) {
  if (i < 0 || i >= vgpu_count())
    return CUDA_ERROR_INVALID_DEVICE;
  *device = i;
  return 0;
}
EXPORT CUresult cuDeviceGetName(char *text, int size, CUdevice device) {
  snprintf(text, size, "%s", vgpu_device()->name);
  return 0;
}
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  memset(uuid, 0x42, 16);
  uuid->bytes[15] = device;
  return 0;
}
EXPORT CUresult cuDeviceTotalMem(size_t *size, CUdevice device) {
  *size = vgpu_total();
  return 0;
}
EXPORT CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device) {
  snprintf(text, size, "00000000:%02X:00.0", 0x10 + device);
  return 0;
}

/* What a kernel author or a compiler may ask of a device; attributes that are not named here answer 0. */
EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  const vgpu_product *g = vgpu_device();
  int hopper = g->capability >= 90, consumer = g->capability == 89 || g->capability == 120;
  switch ((int)attribute) {
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = 1024; break;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
  case CU_DEVICE_ATTRIBUTE_MAX_PITCH: *value = 2147483647; break;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
  case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = g->clock_khz; break;
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = g->memory_khz; break;
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = g->bus_bits; break;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = g->l2; break;
  case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: *value = g->l2 / 8 * 5; break;
  case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: *value = 512; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = g->sms; break;
  case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = 0x10 + device; break;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = consumer ? 1536 : 2048; break;
  case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 3; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = g->capability / 10; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = g->capability % 10; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = g->shared_sm; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = g->shared_block; break;
  case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: *value = 1024; break;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: *value = g->capability == 89 ? 24 : 32; break;
  case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
  case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
  case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
  case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
  case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
  case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
  case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
  case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
  case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
  case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
  case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: *value = hopper; break;
  case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: *value = 9; break;
  default: *value = 0;
  }
  return 0;
}

/* A busy GPU (exclusive process mode, someone else has it) is told when the context is made, not before. */
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  if (vgpu_fault("busy"))
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  *context = CONTEXT;
  return 0;
}
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  if (flags)
    *flags = 0;
  if (active)
    *active = 1;
  return 0;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = CONTEXT;
  return 0;
}
EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  *device = current_device;
  return 0;
}
EXPORT CUresult cuCtxPopCurrent(CUcontext *context) {
  if (context)
    *context = CONTEXT;
  return 0;
}
EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  *value = 1 << 20;
  return 0;
}
EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
  *version = 13000;
  return 0;
}
EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
  *id = 1;
  return 0;
}
EXPORT CUresult cuCtxGetStreamPriorityRange(int *low, int *high) {
  if (low)
    *low = 0;
  if (high)
    *high = -5;
  return 0;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
  switch (error) {
  case CUDA_SUCCESS: *text = "no error"; break;
  case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
  case CUDA_ERROR_DEVICE_UNAVAILABLE: *text = "CUDA-capable device(s) is/are busy or unavailable"; break;
  case CUDA_ERROR_NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
  case CUDA_ERROR_INVALID_IMAGE: *text = "device kernel image is invalid"; break;
  case CUDA_ERROR_NO_BINARY_FOR_GPU: *text = "no kernel image is available for execution on the device"; break;
  case CUDA_ERROR_NOT_FOUND: *text = "named symbol not found"; break;
  case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    *text = "system has unsupported display driver / cuda driver combination";
    break;
  default: *text = "stand-in GPU error";
  }
  return 0;
}
EXPORT CUresult cuGetErrorName(CUresult error, const char **text) {
  *text = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_VGPU";
  return 0;
}

/* Undocumented tables are not imitated; NVIDIA's own libcudart asks for them, which is why it has a stand-in too. */
EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id) {
  const unsigned char *b = (const void *)id->bytes;
  vgpu_log(1, "export table asked: %02x%02x%02x%02x-...%02x%02x", b[0], b[1], b[2], b[3], b[14], b[15]);
  *table = NULL;
  return CUDA_ERROR_NOT_SUPPORTED;
}
