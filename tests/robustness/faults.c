// Faults of the operating system for a server under test, preloaded into its process: a disk that
// is slow, full or failing, and a wall clock that was set. What is wrong now stands in a page of
// numbers in the file $FAULTS, which the test writes and which counts here what was done. The
// server knows nothing of it. It dies with the thread that started it, whatever ends the test.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

// Places in the page; those from 8 on are counts.
enum { SYNC_US, SYNC_ERRNO, WRITE_ERRNO, CLOCK_S, SYNCS_DELAYED = 8, SYNCS_FAILED, WRITES_FAILED, CLOCKS_READ };

static volatile int64_t *page;
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static ssize_t (*real_pwrite64)(int, const void *, size_t, off64_t);
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  real_pwrite64 = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("FAULTS");
  int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at != MAP_FAILED) page = at;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void count(int what) { __atomic_fetch_add(&page[what], 1, __ATOMIC_RELAXED); }

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
  return real(fd);
}

int fsync(int fd) { return sync_with(real_fsync, fd); }
int fdatasync(int fd) { return sync_with(real_fdatasync, fd); }

// A write that fails has written its first half, where it is long enough to be torn.
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  if (page != NULL && page[WRITE_ERRNO] != 0) {
    count(WRITES_FAILED);
    if (length > 1024) real_pwrite64(fd, bytes, length / 2 & ~(size_t)511, offset);
    errno = (int)page[WRITE_ERRNO];
    return -1;
  }
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
