/* Settings of the stand-in: the environment, else the file vgpu.conf beside the library; faults; the log. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vgpu.h"

#define SETTINGS 32
static char setting_names[SETTINGS][32], setting_values[SETTINGS][224];
static int setting_count;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;

static void read_settings(void) {
  Dl_info self;
  char path[4096], line[256];
  if (!dladdr((void *)read_settings, &self) || strlen(self.dli_fname) > sizeof path - 16)
    return;
  snprintf(path, sizeof path, "%s", self.dli_fname);
  char *slash = strrchr(path, '/');
  snprintf(slash ? slash + 1 : path, 16, "vgpu.conf");
  FILE *file = fopen(path, "re");
  if (!file)
    return;
  while (fgets(line, sizeof line, file) && setting_count < SETTINGS) {
    char *equals = strchr(line, '=');
    if (line[0] == '#' || !equals || equals - line >= (long)sizeof setting_names[0])
      continue;
    *equals = 0;
    line[strcspn(equals + 1, "\n") + (size_t)(equals + 1 - line)] = 0;
    snprintf(setting_names[setting_count], sizeof setting_names[0], "%s", line);
    snprintf(setting_values[setting_count++], sizeof setting_values[0], "%s", equals + 1);
  }
  fclose(file);
}

const char *vgpu_setting(const char *name) {
  const char *value = getenv(name);
  if (value)
    return value;
  pthread_once(&settings_once, read_settings);
  for (int i = 0; i < setting_count; i++)
    if (!strcmp(setting_names[i], name))
      return setting_values[i];
  return NULL;
}

/* All GPUs of the machine, and those that CUDA_VISIBLE_DEVICES leaves. */
int vgpu_all(void) {
  const char *count = vgpu_setting("VGPU_COUNT");
  return count ? atoi(count) : 1;
}

int vgpu_count(void) {
  int count = vgpu_all();
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!visible)
    return count;
  int named = *visible && *visible != '-';
  for (; *visible; visible++)
    named += *visible == ',';
  return named < count ? named : count;
}

size_t vgpu_total(void) { return (size_t)(vgpu_device()->memory_gib * 1024.0) << 20; }

/* "13.0" -> 13000, as cuDriverGetVersion counts. */
int vgpu_cuda_version(void) {
  const char *text = vgpu_setting("VGPU_CUDA");
  int major = 13, minor = 0;
  if (text && sscanf(text, "%d.%d", &major, &minor) < 1)
    return 13000;
  return major * 1000 + minor * 10;
}

const char *vgpu_driver_version(void) {
  const char *text = vgpu_setting("VGPU_DRIVER");
  return text ? text : "580.95.05";
}

/* Faults: nodevice, error803, error804, oom, busy, hang. */
int vgpu_fault(const char *name) {
  const char *fault = vgpu_setting("VGPU_FAULT");
  return fault && !strcmp(fault, name);
}

void vgpu_log(int level, const char *format, ...) {
  static int wanted = -1;
  static FILE *file;
  if (wanted < 0) {
    const char *text = vgpu_setting("VGPU_LOG");
    wanted = text ? atoi(text) : 0;
  }
  if (wanted < level)
    return;
  if (!file) {
    const char *path = vgpu_setting("VGPU_LOGFILE");
    file = path ? fopen(path, "ae") : stderr;
    if (!file)
      file = stderr;
    setvbuf(file, NULL, _IOLBF, 0);
  }
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(file, "vgpu[%d] %s\n", (int)getpid(), text);
}

/* Every driver function that is not written here: its name once, then success. */
EXPORT long vgpu_unknown(const char *name) {
  static const char *seen[2048];
  static int count;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  int i;
  pthread_mutex_lock(&lock);
  for (i = 0; i < count && seen[i] != name; i++)
    ;
  int first = i == count && count < 2048;
  if (first)
    seen[count++] = name;
  pthread_mutex_unlock(&lock);
  if (first)
    vgpu_log(1, "STUB %s", name);
  return 0;
}
