// Faults of the operating system for a server under test, preloaded into its process. Each is on
// while a file of its name exists in the directory $FAULTS: "full" (no space), "fsync" (a sync
// fails), "hang" (a sync does not return), "hang-log" (nor does one of the log's files), "readonly" (nothing below $FAULTS_DATA opens for
// writing). The server knows nothing of it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int on(const char *fault) {
  char path[4096];
  const char *directory = getenv("FAULTS");
  if (directory == NULL) return 0;
  snprintf(path, sizeof path, "%s/%s", directory, fault);
  return access(path, F_OK) == 0;
}

static int in_log(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strstr(path, "/log") != NULL;
}

static int sync_with(const char *name, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  while (on("hang") || (on("hang-log") && in_log(fd))) usleep(20000);
  if (on("fsync")) {
    errno = EIO;
    return -1;
  }
  return real(fd);
}

int fsync(int fd) { return sync_with("fsync", fd); }
int fdatasync(int fd) { return sync_with("fdatasync", fd); }

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
  ssize_t (*real)(int, const void *, size_t, off64_t) =
      (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  if (on("full")) {
    errno = ENOSPC;
    return -1;
  }
  return real(fd, bytes, count, offset);
}

int open64(const char *path, int flags, ...) {
  int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
  const char *data = getenv("FAULTS_DATA");
  va_list rest;
  va_start(rest, flags);
  mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
  if (writes && data != NULL && strncmp(path, data, strlen(data)) == 0 && on("readonly")) {
    errno = EROFS;
    return -1;
  }
  return real(path, flags, mode);
}
