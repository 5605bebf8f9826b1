/* Modules: cubins are opened far enough to refuse the wrong SM and a missing kernel, and to tell registers, stack and shared memory. */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vgpu.h"

#define NAME 240
/* Attribute numbers in .nv.info that `cuobjdump -res-usage` agrees with. */
#define INFO_REGISTERS 0x2f
#define INFO_STACK 0x11
#define DEFAULT_DYNAMIC_SHARED 49152

typedef struct {
  char *image;
  size_t size;
} module;
typedef struct {
  char name[NAME];
  int registers, stack, shared, threads, dynamic_shared;
  module *owner;
} function;

/* ---- ELF64, little endian ---- */
static uint16_t u16(const void *p) {
  uint16_t v;
  memcpy(&v, p, sizeof v);
  return v;
}
static uint32_t u32(const void *p) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return v;
}
static uint64_t u64(const void *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}
static const char *section(const module *m, int i) {
  return m->image + u64(m->image + 40) + (size_t)i * u16(m->image + 58);
}
static int sections(const module *m) { return u16(m->image + 60); }
static const char *section_data(const module *m, const char *s) { return m->image + u64(s + 24); }
static size_t section_size(const char *s) { return u64(s + 32); }
static const char *section_name(const module *m, const char *s) {
  return section_data(m, section(m, u16(m->image + 62))) + u32(s);
}
static int cubin_sm(const unsigned char *b) {
  unsigned flags = u32(b + 48);
  return b[8] >= 8 ? (flags >> 8) & 0xff : flags & 0xff;
}

/* The image's size is not handed over: it ends with its last table. */
static size_t image_size(const char *b) {
  uint64_t end_sections = u64(b + 40) + (uint64_t)u16(b + 58) * u16(b + 60),
           end_programs = u64(b + 32) + (uint64_t)u16(b + 54) * u16(b + 56);
  return end_sections > end_programs ? end_sections : end_programs;
}

static CUresult load(CUmodule *out, const void *data) {
  const unsigned char *b = data;
  module *m = calloc(1, sizeof *m);
  if (!memcmp(b, "\177ELF", 4)) {
    int sm = cubin_sm(b), here = vgpu_device()->capability;
    if (sm / 10 != here / 10 || sm > here) {
      vgpu_log(1, "cubin for sm_%d refused on sm_%d", sm, here);
      free(m);
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    m->size = image_size(data);
    m->image = malloc(m->size);
    memcpy(m->image, data, m->size);
  }
  *out = (CUmodule)m;
  return 0;
}

static void read_info(const module *m, const char *info, const char *symbols, function *f) {
  const char *data = section_data(m, info), *table = section_data(m, symbols),
             *names = section_data(m, section(m, u32(symbols + 40)));
  for (size_t at = 0; at + 4 <= section_size(info);) {
    int form = (unsigned char)data[at], attribute = (unsigned char)data[at + 1],
        size = form == 4 ? u16(data + at + 2) : 0;
    if (form == 4 && size >= 8 && !strcmp(names + u32(table + 24ul * u32(data + at + 4)), f->name)) {
      if (attribute == INFO_REGISTERS)
        f->registers = u32(data + at + 8);
      if (attribute == INFO_STACK)
        f->stack = u32(data + at + 8);
    }
    at += 4 + size;
  }
}

static int find(module *m, const char *name, function *f) {
  f->registers = 32;
  f->threads = 1024;
  f->owner = m;
  snprintf(f->name, sizeof f->name, "%s", name);
  if (!m || !m->image)
    return 1; /* PTX or a fat binary: nothing to look into */
  char text[NAME + 16], shared[NAME + 16];
  snprintf(text, sizeof text, ".text.%s", name);
  snprintf(shared, sizeof shared, ".nv.shared.%s", name);
  const char *info = NULL, *symbols = NULL;
  int there = 0;
  for (int i = 0; i < sections(m); i++) {
    const char *s = section(m, i), *n = section_name(m, s);
    if (!strcmp(n, text))
      there = 1;
    else if (!strcmp(n, shared))
      f->shared = section_size(s);
    else if (!strcmp(n, ".nv.info"))
      info = s;
    else if (u32(s + 4) == 2)
      symbols = s; /* SHT_SYMTAB */
  }
  if (info && symbols)
    read_info(m, info, symbols, f);
  return there;
}

static CUresult make(CUfunction *out, module *m, const char *name) {
  function *f = calloc(1, sizeof *f);
  if (!find(m, name, f)) {
    free(f);
    vgpu_log(1, "no kernel %s", name);
    return CUDA_ERROR_NOT_FOUND;
  }
  vgpu_log(2, "function %s registers %d stack %d shared %d", name, f->registers, f->stack, f->shared);
  *out = (CUfunction)f;
  return 0;
}

/* Every .text.NAME section is one kernel. */
static unsigned kernels(module *m, CUkernel *out, unsigned room) {
  unsigned count = 0;
  if (!m || !m->image)
    return 0;
  for (int i = 0; i < sections(m); i++) {
    const char *name = section_name(m, section(m, i));
    if (strncmp(name, ".text.", 6))
      continue;
    if (out && count < room)
      make((CUfunction *)out + count, m, name + 6);
    count++;
  }
  return count;
}

EXPORT CUresult cuModuleLoadData(CUmodule *m, const void *data) { return load(m, data); }
EXPORT CUresult cuModuleLoadDataEx(CUmodule *m, const void *data, unsigned count, CUjit_option *options,
                                   void **values) {
  return load(m, data);
}
EXPORT CUresult cuModuleLoadFatBinary(CUmodule *m, const void *data) {
  *m = calloc(1, sizeof(module));
  return 0;
}
EXPORT CUresult cuModuleLoad(CUmodule *m, const char *path) {
  FILE *file = fopen(path, "rbe");
  if (!file)
    return CUDA_ERROR_FILE_NOT_FOUND;
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char *data = calloc(1, size + 64);
  size_t got = fread(data, 1, size, file);
  fclose(file);
  CUresult result = got == (size_t)size ? load(m, data) : CUDA_ERROR_INVALID_IMAGE;
  free(data);
  return result;
}
EXPORT CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) { return make(f, (module *)m, name); }
EXPORT CUresult cuModuleGetGlobal(CUdeviceptr *p, size_t *size, CUmodule m, const char *name) {
  if (p)
    *p = (CUdeviceptr)vgpu_allocate(1 << 16, 0);
  if (size)
    *size = 1 << 16;
  return 0;
}
EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
  *mode = CU_MODULE_LAZY_LOADING;
  return 0;
}
EXPORT CUresult cuLibraryLoadData(CUlibrary *l, const void *code, CUjit_option *jit, void **jit_values,
                                  unsigned jit_count, CUlibraryOption *options, void **values, unsigned count) {
  return load((CUmodule *)l, code);
}
EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *l, const char *path, CUjit_option *jit, void **jit_values,
                                      unsigned jit_count, CUlibraryOption *options, void **values, unsigned count) {
  return cuModuleLoad((CUmodule *)l, path);
}
EXPORT CUresult cuLibraryGetKernel(CUkernel *k, CUlibrary l, const char *name) {
  return make((CUfunction *)k, (module *)l, name);
}
EXPORT CUresult cuLibraryGetModule(CUmodule *m, CUlibrary l) {
  *m = (CUmodule)l;
  return 0;
}
EXPORT CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary l) {
  *count = kernels((module *)l, NULL, 0);
  return 0;
}
EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *k, unsigned room, CUlibrary l) {
  kernels((module *)l, k, room);
  return 0;
}
EXPORT CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule m) {
  *count = kernels((module *)m, NULL, 0);
  return 0;
}
EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *f, unsigned room, CUmodule m) {
  kernels((module *)m, (CUkernel *)f, room);
  return 0;
}
EXPORT CUresult cuKernelGetName(const char **name, CUkernel k) {
  *name = ((function *)k)->name;
  return 0;
}
EXPORT CUresult cuKernelGetFunction(CUfunction *f, CUkernel k) {
  *f = (CUfunction)k;
  return 0;
}
EXPORT CUresult cuFuncGetName(const char **name, CUfunction f) {
  *name = ((function *)f)->name;
  return 0;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
  function *f = (function *)handle;
  switch ((int)attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = f->threads; break;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = f->shared; break;
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = f->stack; break;
  case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = f->registers; break;
  case CU_FUNC_ATTRIBUTE_PTX_VERSION:
  case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = vgpu_device()->capability; break;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    *value = f->dynamic_shared ? f->dynamic_shared : DEFAULT_DYNAMIC_SHARED;
    break;
  default: *value = 0;
  }
  return 0;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  function *f = (function *)handle;
  if ((int)attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    return 0;
  if (value + f->shared > vgpu_device()->shared_block)
    return CUDA_ERROR_INVALID_VALUE;
  f->dynamic_shared = value;
  return 0;
}
EXPORT CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel k, CUdevice device) {
  return cuFuncGetAttribute(value, attribute, (CUfunction)k);
}
EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel k, CUdevice device) {
  return cuFuncSetAttribute((CUfunction)k, attribute, value);
}
