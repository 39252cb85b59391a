// Faults of the operating system for a server under test, preloaded into its process: a disk that
// is slow, full or failing, and a wall clock that was set. What is wrong now stands in a page of
// numbers in the file $FAULTS, which the test writes and which counts here what was done. The
// server knows nothing of it. It dies with the thread that started it, whatever ends the test.
//
// $FAULTS.undo holds what was in the place of everything that was written and not synced yet, so
// that the test can take it away from a server that it has killed, as a loss of power would.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// Places in the page; those from 8 on are counts.
enum { SYNC_US, SYNC_ERRNO, WRITE_ERRNO, CLOCK_S, SYNCS_DELAYED = 8, SYNCS_FAILED, WRITES_FAILED, CLOCKS_READ };

static volatile int64_t *page;
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static ssize_t (*real_pwrite64)(int, const void *, size_t, off64_t);
static int (*real_clock_gettime)(clockid_t, struct timespec *);

// The head of a record of the undo file; the path follows it, and then the bytes that were there.
struct head {
  int64_t synced, path_length, offset, had, size_before;
};
enum { MOST_FILES = 64 };
static int undo = -1;
static pthread_mutex_t undo_lock = PTHREAD_MUTEX_INITIALIZER;
static char unsynced[MOST_FILES][PATH_MAX]; // names of files with writes that are not synced
static int unsynced_count;

__attribute__((constructor)) static void begin(void) {
  real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  real_pwrite64 = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("FAULTS");
  int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  char name[PATH_MAX];
  snprintf(name, sizeof name, "%s.undo", path);
  undo = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at != MAP_FAILED) page = at;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void count(int what) { __atomic_fetch_add(&page[what], 1, __ATOMIC_RELAXED); }

static int path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return 1;
}

static int place_of(const char *path) {
  int at = 0;
  while (at < unsynced_count && strcmp(unsynced[at], path) != 0) at++;
  return at;
}

static void record(struct head head, const char *path, void *bytes) {
  head.path_length = (int64_t)strlen(path);
  struct iovec parts[] = {
      {&head, sizeof head}, {(void *)path, (size_t)head.path_length}, {bytes, (size_t)head.had}};
  if (writev(undo, parts, 3) < 0) abort();
}

// What is about to be overwritten.
static void before_write(int fd, size_t length, off64_t offset) {
  char path[PATH_MAX];
  struct stat64 stat;
  if (undo < 0 || !path_of(fd, path) || fstat64(fd, &stat) != 0) return;
  void *bytes = malloc(length > 0 ? length : 1);
  if (bytes == NULL) abort();
  ssize_t had = pread64(fd, bytes, length, offset);
  pthread_mutex_lock(&undo_lock);
  int at = place_of(path);
  if (at == unsynced_count && at < MOST_FILES) strcpy(unsynced[unsynced_count++], path);
  record((struct head){0, 0, offset, had < 0 ? 0 : had, stat.st_size}, path, bytes);
  pthread_mutex_unlock(&undo_lock);
  free(bytes);
}

static void after_sync(int fd) {
  char path[PATH_MAX];
  if (undo < 0 || !path_of(fd, path)) return;
  pthread_mutex_lock(&undo_lock);
  int at = place_of(path);
  if (at < unsynced_count) {
    unsynced_count--;
    memmove(unsynced[at], unsynced[unsynced_count], PATH_MAX);
    record((struct head){1, 0, 0, 0, 0}, path, NULL);
    if (unsynced_count == 0 && ftruncate(undo, 0) != 0) abort();
  }
  pthread_mutex_unlock(&undo_lock);
}

static int sync_with(int (*real)(int), int fd) {
  if (page != NULL && page[SYNC_US] > 0) {
    count(SYNCS_DELAYED);
    // In small steps: a disk that recovers does so at once.
    int64_t left = page[SYNC_US];
    while (left > 0 && page[SYNC_US] > 0) {
      usleep(5000);
      left -= 5000;
    }
  }
  if (page != NULL && page[SYNC_ERRNO] != 0) {
    count(SYNCS_FAILED);
    errno = (int)page[SYNC_ERRNO];
    return -1;
  }
  int result = real(fd);
  if (result == 0 && page != NULL) after_sync(fd);
  return result;
}

int fsync(int fd) { return sync_with(real_fsync, fd); }
int fdatasync(int fd) { return sync_with(real_fdatasync, fd); }

// A write that fails has written its first half, where it is long enough to be torn.
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  if (page != NULL && page[WRITE_ERRNO] != 0) {
    count(WRITES_FAILED);
    before_write(fd, length, offset);
    if (length > 1024) real_pwrite64(fd, bytes, length / 2 & ~(size_t)511, offset);
    errno = (int)page[WRITE_ERRNO];
    return -1;
  }
  if (page != NULL) before_write(fd, length, offset);
  return real_pwrite64(fd, bytes, length, offset);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (real_clock_gettime == NULL) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  }
  int result = real_clock_gettime(clock, time);
  if (clock == CLOCK_REALTIME && page != NULL && page[CLOCK_S] != 0) {
    count(CLOCKS_READ);
    time->tv_sec += page[CLOCK_S];
  }
  return result;
}
