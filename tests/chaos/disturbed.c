/* LD_PRELOAD: a slow disk and a wall clock that jumps, for one program. Two numbers in a mapped file say how much:
   microseconds that every write and sync to a file takes longer, and seconds added to CLOCK_REALTIME. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control { volatile int64_t delay_us, offset_s; };
static struct control nothing, *control = &nothing;

__attribute__((constructor)) static void open_control(void) {
    const char *path = getenv("DISTURBED_CONTROL");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) control = mapped;
    close(file);
}

static void delay(void) {
    int64_t us = control->delay_us;
    if (us > 0) {
        struct timespec pause = {us / 1000000, us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
}

ssize_t write(int file, const void *bytes, size_t count) {
    struct stat about;
    if (control->delay_us > 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode)) delay();
    return syscall(SYS_write, file, bytes, count);
}

int fsync(int file) {
    delay();
    return syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    delay();
    return syscall(SYS_fdatasync, file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = next(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += control->offset_s;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
