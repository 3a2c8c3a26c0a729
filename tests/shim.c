/* Counts the operations of a process that change files below one directory, over all threads, and at the N-th one ends
 * the process or lets this and all later ones fail; or copies the directory before each of them, which is what a process
 * that is killed there leaves.
 *
 * cc -shared -fPIC -O1 -o shim.so shim.c -ldl -pthread;  LD_PRELOAD=shim.so PROGRAM
 *
 * It does nothing until `shim_arm` is called, from inside the process (Python: ctypes.CDLL(None).shim_arm), or the
 * environment has SHIM_DIR, SHIM_AT, SHIM_ERRNO. What it calls an operation is in `names`; an open counts if it may
 * create or empty a file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, WRITE, SYNC, RENAME, MKDIR, UNLINK, TRUNCATE, KINDS };
const char *names[] = {"open", "write", "fsync", "rename", "mkdir", "unlink", "truncate"};

static char directory[PATH_MAX];
static size_t length;
static long at;    /* the operation at which something happens; 0: none */
static int error;  /* what it fails with; 0: it kills the process */
static long shift; /* seconds by which the wall clock is wrong */
static long delay; /* microseconds that an operation waits */
static long count;
static long of_kind[KINDS];
static char copies[PATH_MAX]; /* where copies go; empty: none */
static long every = 1;        /* of the operations before which there is one */
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* operations follow one another */

void shim_arm(const char *where, long number, int with) {
  at = number, error = with;
  count = 0, copies[0] = 0;
  memset(of_kind, 0, sizeof of_kind);
  snprintf(directory, sizeof directory, "%s", where);
  length = strlen(directory);
}

void shim_shift(long seconds) { shift = seconds; }

void shim_delay(long microseconds) { delay = microseconds; }

void shim_copy(const char *where, long one_of) { snprintf(copies, sizeof copies, "%s", where), every = one_of; }

long shim_count(int kind) { return kind < 0 ? count : of_kind[kind]; }

/* In a process of its own, whose operations do not count. */
static void copy(void) {
  char to[PATH_MAX + 32];
  snprintf(to, sizeof to, "%s/%ld", copies, count);
  char *words[] = {"cp", "-a", directory, to, NULL}, *none[] = {"PATH=/usr/bin:/bin", NULL};
  pid_t process;
  int status = 1;
  if (posix_spawnp(&process, "cp", NULL, NULL, words, none) || waitpid(process, &status, 0) < 0 || status) abort();
}

__attribute__((constructor)) static void from_environment(void) {
  const char *where = getenv("SHIM_DIR"), *number = getenv("SHIM_AT"), *with = getenv("SHIM_ERRNO");
  if (where) shim_arm(where, number ? atol(number) : 0, with ? atoi(with) : 0);
}

static int below(const char *path) {
  return length && !strncmp(path, directory, length) && (path[length] == '/' || !path[length]);
}

static int path_below(int folder, const char *path) {
  char whole[2 * PATH_MAX], link[64];
  ssize_t n = 0;
  if (!length || !path) return 0;
  if (path[0] == '/') return below(path);
  if (folder == AT_FDCWD) {
    if (!getcwd(whole, PATH_MAX)) return 0;
    n = strlen(whole);
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    if ((n = readlink(link, whole, PATH_MAX)) < 0) return 0;
  }
  snprintf(whole + n, PATH_MAX, "/%s", path);
  return below(whole);
}

static int fd_below(int fd) {
  char whole[PATH_MAX], link[64];
  if (!length || fd < 3) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, whole, sizeof whole - 1);
  if (n < 0) return 0;
  whole[n] = 0;
  return below(whole);
}

/* Whether the operation is to fail; errno says how. */
static int strikes(int kind) {
  count++, of_kind[kind]++;
  if (copies[0] && (count - 1) % every == 0) copy();
  if (delay) usleep(delay);
  if (!at || count < at) return 0;
  if (!error) {
    kill(getpid(), SIGKILL);
    for (;;) pause(); /* the signal may reach another thread first */
  }
  /* On a full disk one can remove and rename; on a read-only one nothing. */
  if (error == ENOSPC && (kind == UNLINK || kind == RENAME)) return 0;
  errno = error;
  return 1;
}

/* Calls the real function, unless the operation is to fail. */
#define DO(type, condition, kind, call) \
  if (!(condition)) return call;        \
  pthread_mutex_lock(&one);             \
  type result = -1;                     \
  if (!strikes(kind)) result = call;    \
  int told = errno;                     \
  pthread_mutex_unlock(&one);           \
  errno = told;                         \
  return result;

#define REAL(name)                                   \
  static __typeof__(&name) real;                     \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FD(type, name, kind, parameters, arguments) \
  type name parameters {                            \
    REAL(name);                                     \
    DO(type, fd_below(fd), kind, real arguments)    \
  }
#define PATH(type, name, kind, folder, parameters, arguments) \
  type name parameters {                                      \
    REAL(name);                                               \
    DO(type, path_below(folder, path), kind, real arguments)  \
  }

FD(ssize_t, write, WRITE, (int fd, const void *data, size_t n), (fd, data, n))
FD(ssize_t, writev, WRITE, (int fd, const struct iovec *data, int n), (fd, data, n))
FD(ssize_t, pwrite, WRITE, (int fd, const void *data, size_t n, off_t to), (fd, data, n, to))
FD(ssize_t, pwrite64, WRITE, (int fd, const void *data, size_t n, off64_t to), (fd, data, n, to))
FD(ssize_t, pwritev, WRITE, (int fd, const struct iovec *data, int n, off_t to), (fd, data, n, to))
FD(int, fsync, SYNC, (int fd), (fd))
FD(int, fdatasync, SYNC, (int fd), (fd))
FD(int, ftruncate, TRUNCATE, (int fd, off_t n), (fd, n))
FD(int, ftruncate64, TRUNCATE, (int fd, off64_t n), (fd, n))
PATH(int, mkdir, MKDIR, AT_FDCWD, (const char *path, mode_t mode), (path, mode))
PATH(int, mkdirat, MKDIR, folder, (int folder, const char *path, mode_t mode), (folder, path, mode))
PATH(int, unlink, UNLINK, AT_FDCWD, (const char *path), (path))
PATH(int, unlinkat, UNLINK, folder, (int folder, const char *path, int flags), (folder, path, flags))
PATH(int, rmdir, UNLINK, AT_FDCWD, (const char *path), (path))
PATH(int, rename, RENAME, AT_FDCWD, (const char *from, const char *path), (from, path))
PATH(int, renameat, RENAME, folder, (int from, const char *name, int folder, const char *path),
     (from, name, folder, path))
PATH(int, renameat2, RENAME, folder, (int from, const char *name, int folder, const char *path, unsigned flags),
     (from, name, folder, path, flags))

static int changes(int flags) { return flags & (O_CREAT | O_TRUNC); }

#define OPENS(name, folder, parameters, arguments)                              \
  int name parameters {                                                         \
    REAL(name);                                                                 \
    mode_t mode = 0;                                                            \
    if (flags & (O_CREAT | O_TMPFILE)) {                                        \
      va_list more;                                                             \
      va_start(more, flags);                                                    \
      mode = va_arg(more, int);                                                 \
      va_end(more);                                                             \
    }                                                                           \
    DO(int, changes(flags) && path_below(folder, path), OPEN, real arguments)   \
  }

OPENS(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, folder, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPENS(openat64, folder, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))

/* The wall clock alone: what is waited for goes by the other one. */
int clock_gettime(clockid_t clock, struct timespec *now) {
  REAL(clock_gettime);
  int failed = real(clock, now);
  if (!failed && clock == CLOCK_REALTIME) now->tv_sec += shift;
  return failed;
}
