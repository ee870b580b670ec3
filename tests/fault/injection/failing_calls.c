/* Makes calls of the C library fail: preloaded (LD_PRELOAD) into the process that is tested and into its children.

   The file named by FAILING_CALLS_STATE is mapped and shared with the tester, who writes the head of `struct state` and
   reads the calls. Only calls about files below a folder are numbered, from 0, over all processes together. Paths are
   compared as texts: the tester names the folder without links. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind {
    OPEN, READ, WRITE, FSYNC, CLOSE, RENAME, UNLINK, MKDIR, TRUNCATE, LINK, LOCK, STAT, MMAP, LIST, N_KINDS
};
#define N_CALLS 65536
#define N_PATH 248

struct call {
    int kind;
    int error; /* it failed with; 0: it was passed on */
    char path[N_PATH];
};

/* In the order and the sizes of calls.py. */
struct state {
    int errors[16];        /* by kind; 0: calls of this kind never fail */
    long first, last;      /* the numbers of the calls that fail */
    atomic_long n_calls;
    char below[PATH_MAX];  /* the folder; empty: nothing is numbered */
    struct call calls[N_CALLS];
};

static struct state *state;

__attribute__((constructor)) static void map_state(void) {
    const char *file = getenv("FAILING_CALLS_STATE");
    if (!file) return;
    int fd = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return;
    void *found = (void *)syscall(SYS_mmap, NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (found != MAP_FAILED) state = found;
}

/* Numbers a call about a path. Returns the error that it is to end with, or 0. */
static int numbered(enum kind kind, const char *path) {
    size_t n = strlen(state->below);
    if (strncmp(path, state->below, n) || (path[n] && path[n] != '/')) return 0;
    long number = atomic_fetch_add(&state->n_calls, 1);
    int error = number >= state->first && number <= state->last ? state->errors[kind] : 0;
    if (number < N_CALLS) {
        struct call *call = &state->calls[number];
        call->kind = kind;
        call->error = error;
        strncpy(call->path, path + n, N_PATH - 1);
    }
    return error;
}

static int is_idle(void) { return !state || !state->below[0]; }

static int of_fd(enum kind kind, int fd) {
    if (is_idle() || fd < 0) return 0;
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, name, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return numbered(kind, path);
}

static int of_path(enum kind kind, int at, const char *path) {
    if (is_idle() || !path) return 0;
    if (path[0] == '/') return numbered(kind, path);
    char whole[2 * PATH_MAX] = "";
    long n;
    if (at == AT_FDCWD) {
        n = syscall(SYS_getcwd, whole, PATH_MAX) - 1;
    } else {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", at);
        n = syscall(SYS_readlinkat, AT_FDCWD, name, whole, PATH_MAX - 1);
    }
    if (n <= 0) return 0;
    whole[n] = 0;
    if (path[0]) snprintf(whole + n, PATH_MAX, "/%s", path);
    return numbered(kind, whole);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(failure, value) do { int e_ = (failure); if (e_) { errno = e_; return (value); } } while (0)

/* Calls on an opened file. */
#define ON_FD(kind, type, name, parameters, arguments) \
    type name parameters { \
        FAIL(of_fd(kind, fd), -1); \
        static type (*real) parameters; \
        if (!real) real = (type (*) parameters)dlsym(RTLD_NEXT, #name); \
        return real arguments; \
    }
/* Calls on a path. */
#define ON_PATH(kind, type, name, at, parameters, arguments) \
    type name parameters { \
        FAIL(of_path(kind, at, path), -1); \
        static type (*real) parameters; \
        if (!real) real = (type (*) parameters)dlsym(RTLD_NEXT, #name); \
        return real arguments; \
    }

ON_FD(READ, ssize_t, read, (int fd, void *b, size_t n), (fd, b, n))
ON_FD(READ, ssize_t, pread, (int fd, void *b, size_t n, off_t o), (fd, b, n, o))
ON_FD(READ, ssize_t, pread64, (int fd, void *b, size_t n, off64_t o), (fd, b, n, o))
ON_FD(READ, ssize_t, __read_chk, (int fd, void *b, size_t n, size_t m), (fd, b, n, m))
ON_FD(READ, ssize_t, __pread64_chk, (int fd, void *b, size_t n, off64_t o, size_t m), (fd, b, n, o, m))
ON_FD(READ, ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n))
ON_FD(READ, ssize_t, preadv, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o))
ON_FD(READ, ssize_t, preadv64, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o))
ON_FD(WRITE, ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n))
ON_FD(WRITE, ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o))
ON_FD(WRITE, ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o))
ON_FD(WRITE, ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n))
ON_FD(WRITE, ssize_t, sendfile, (int fd, int from, off_t *o, size_t n), (fd, from, o, n))
ON_FD(WRITE, ssize_t, sendfile64, (int fd, int from, off64_t *o, size_t n), (fd, from, o, n))
ON_FD(FSYNC, int, fsync, (int fd), (fd))
ON_FD(FSYNC, int, fdatasync, (int fd), (fd))
ON_FD(TRUNCATE, int, ftruncate, (int fd, off_t n), (fd, n))
ON_FD(TRUNCATE, int, ftruncate64, (int fd, off64_t n), (fd, n))
ON_FD(TRUNCATE, int, fallocate, (int fd, int m, off_t o, off_t n), (fd, m, o, n))
ON_FD(TRUNCATE, int, fallocate64, (int fd, int m, off64_t o, off64_t n), (fd, m, o, n))
ON_FD(LOCK, int, flock, (int fd, int o), (fd, o))
ON_FD(STAT, int, fstat, (int fd, struct stat *s), (fd, s))
ON_FD(STAT, int, fstat64, (int fd, struct stat64 *s), (fd, s))
ON_FD(STAT, int, __fxstat, (int v, int fd, struct stat *s), (v, fd, s))
ON_FD(STAT, int, __fxstat64, (int v, int fd, struct stat64 *s), (v, fd, s))

ON_PATH(STAT, int, stat, AT_FDCWD, (const char *path, struct stat *s), (path, s))
ON_PATH(STAT, int, stat64, AT_FDCWD, (const char *path, struct stat64 *s), (path, s))
ON_PATH(STAT, int, lstat, AT_FDCWD, (const char *path, struct stat *s), (path, s))
ON_PATH(STAT, int, lstat64, AT_FDCWD, (const char *path, struct stat64 *s), (path, s))
ON_PATH(STAT, int, __xstat, AT_FDCWD, (int v, const char *path, struct stat *s), (v, path, s))
ON_PATH(STAT, int, __xstat64, AT_FDCWD, (int v, const char *path, struct stat64 *s), (v, path, s))
ON_PATH(STAT, int, __lxstat, AT_FDCWD, (int v, const char *path, struct stat *s), (v, path, s))
ON_PATH(STAT, int, __lxstat64, AT_FDCWD, (int v, const char *path, struct stat64 *s), (v, path, s))
ON_PATH(STAT, int, fstatat, at, (int at, const char *path, struct stat *s, int f), (at, path, s, f))
ON_PATH(STAT, int, fstatat64, at, (int at, const char *path, struct stat64 *s, int f), (at, path, s, f))
ON_PATH(STAT, int, statx, at, (int at, const char *path, int f, unsigned m, struct statx *s), (at, path, f, m, s))
ON_PATH(STAT, int, access, AT_FDCWD, (const char *path, int m), (path, m))
ON_PATH(STAT, int, faccessat, at, (int at, const char *path, int m, int f), (at, path, m, f))
ON_PATH(STAT, ssize_t, readlink, AT_FDCWD, (const char *path, char *b, size_t n), (path, b, n))
ON_PATH(STAT, ssize_t, readlinkat, at, (int at, const char *path, char *b, size_t n), (at, path, b, n))
ON_PATH(RENAME, int, rename, AT_FDCWD, (const char *path, const char *to), (path, to))
ON_PATH(RENAME, int, renameat, at, (int at, const char *path, int a2, const char *to), (at, path, a2, to))
ON_PATH(RENAME, int, renameat2, at, (int at, const char *path, int a2, const char *to, unsigned f), (at, path, a2, to, f))
ON_PATH(UNLINK, int, unlink, AT_FDCWD, (const char *path), (path))
ON_PATH(UNLINK, int, unlinkat, at, (int at, const char *path, int f), (at, path, f))
ON_PATH(UNLINK, int, rmdir, AT_FDCWD, (const char *path), (path))
ON_PATH(MKDIR, int, mkdir, AT_FDCWD, (const char *path, mode_t m), (path, m))
ON_PATH(MKDIR, int, mkdirat, at, (int at, const char *path, mode_t m), (at, path, m))
ON_PATH(TRUNCATE, int, truncate, AT_FDCWD, (const char *path, off_t n), (path, n))
ON_PATH(TRUNCATE, int, truncate64, AT_FDCWD, (const char *path, off64_t n), (path, n))

int link(const char *from, const char *path) {
    FAIL(of_path(LINK, AT_FDCWD, path), -1);
    return REAL(link)(from, path);
}

int linkat(int a1, const char *from, int at, const char *path, int f) {
    FAIL(of_path(LINK, at, path), -1);
    return REAL(linkat)(a1, from, at, path, f);
}

int symlink(const char *target, const char *path) {
    FAIL(of_path(LINK, AT_FDCWD, path), -1);
    return REAL(symlink)(target, path);
}

int symlinkat(const char *target, int at, const char *path) {
    FAIL(of_path(LINK, at, path), -1);
    return REAL(symlinkat)(target, at, path);
}

/* It fails as on NFS, which may write only now: the file is closed all the same. */
int close(int fd) {
    int error = 0;
    if (!is_idle()) {
        int flags = syscall(SYS_fcntl, fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) error = of_fd(CLOSE, fd);
    }
    static int (*real)(int);
    if (!real) real = REAL(close);
    int ended = real(fd);
    FAIL(error, -1);
    return ended;
}

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        FAIL(of_path(OPEN, AT_FDCWD, path), -1); \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name) \
    int name(int at, const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        FAIL(of_path(OPEN, at, path), -1); \
        return ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name))(at, path, flags, mode); \
    }
OPENING_AT(openat)
OPENING_AT(openat64)
ON_PATH(OPEN, int, __open_2, AT_FDCWD, (const char *path, int f), (path, f))
ON_PATH(OPEN, int, __open64_2, AT_FDCWD, (const char *path, int f), (path, f))
ON_PATH(OPEN, int, __openat_2, at, (int at, const char *path, int f), (at, path, f))
ON_PATH(OPEN, int, __openat64_2, at, (int at, const char *path, int f), (at, path, f))
ON_PATH(OPEN, int, creat, AT_FDCWD, (const char *path, mode_t m), (path, m))
ON_PATH(OPEN, int, creat64, AT_FDCWD, (const char *path, mode_t m), (path, m))

FILE *fopen(const char *path, const char *mode) {
    FAIL(of_path(OPEN, AT_FDCWD, path), NULL);
    return REAL(fopen)(path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
    FAIL(of_path(OPEN, AT_FDCWD, path), NULL);
    return REAL(fopen64)(path, mode);
}

#define CONTROLLING(name) \
    int name(int fd, int command, ...) { \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) \
            FAIL(of_fd(LOCK, fd), -1); \
        return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, #name))(fd, command, argument); \
    }
CONTROLLING(fcntl)
CONTROLLING(fcntl64)

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t o) {
    FAIL(of_fd(MMAP, fd), MAP_FAILED);
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, o);
}

void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t o) {
    FAIL(of_fd(MMAP, fd), MAP_FAILED);
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, o);
}

DIR *opendir(const char *path) {
    FAIL(of_path(OPEN, AT_FDCWD, path), NULL);
    return REAL(opendir)(path);
}

DIR *fdopendir(int fd) {
    FAIL(of_fd(LIST, fd), NULL);
    return REAL(fdopendir)(fd);
}

struct dirent *readdir(DIR *list) {
    FAIL(of_fd(LIST, dirfd(list)), NULL);
    static struct dirent *(*real)(DIR *);
    if (!real) real = REAL(readdir);
    return real(list);
}

struct dirent64 *readdir64(DIR *list) {
    FAIL(of_fd(LIST, dirfd(list)), NULL);
    static struct dirent64 *(*real)(DIR *);
    if (!real) real = REAL(readdir64);
    return real(list);
}
