/* Runs a command and watches its file operations below one folder: records them with their content, makes chosen ones
 * fail, or kills the process before one.
 *
 *     tracer FOLDER TRACE COMMAND...
 *
 * A ptrace tracer with a seccomp filter, not an LD_PRELOAD library: safetensors' Rust code makes some system calls
 * (renameat) without libc, which a preloaded library would not see. All processes and threads of the command are
 * followed. A process says what it wants with prctl(REQUEST_*, ...), which only a tracer answers; its later threads
 * and children inherit that. Records in TRACE are
 *
 *     operation TAB pid TAB result TAB fault TAB offset TAB length TAB path TAB other path NEWLINE content NEWLINE
 *
 * in the order in which the calls returned; result is a negative errno where the call failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __x86_64__
#error "written for the system calls of x86_64"
#endif

enum {
    OPEN_READ = 1, OPEN_WRITE = 2, READ = 4, WRITE = 8, TRUNCATE = 16, SYNC = 32, RENAME = 64, LINK = 128,
    UNLINK = 256, MKDIR = 512, RMDIR = 1024, CLOSE = 2048, LIST = 4096, OTHER = 8192
};
enum { FAULT_ERROR = 1, FAULT_SHORT_WRITE = 2, FAULT_KILL = 3 };
enum { REQUEST_FAULT = 0x56524e01, REQUEST_RECORD = 0x56524e02, REQUEST_COUNT = 0x56524e03 };
enum { MAX_TASKS = 1 << 22, MAX_PATH = 4096 };

/* What a process and its children want. */
struct plan {
    int record;      /* write every operation to the trace */
    unsigned mask;   /* operations that count and may fail */
    int mode, error; /* one of FAULT_*; errno of FAULT_ERROR */
    long first;      /* number of the first operation that fails, from 1 */
    int persistent;  /* all later ones fail too */
    long count;      /* operations of the mask so far */
};

/* An operation between its call and its return. */
struct call {
    int active, fault, error;
    unsigned operation;
    long offset; /* -1: where the file position is */
    int fd;
    size_t length;
    char *content;
    char path[MAX_PATH], other[MAX_PATH];
};

struct task {
    struct plan *plan;
    struct call call;
};

static struct task *tasks[MAX_TASKS];
static char waiting[MAX_TASKS]; /* stopped before its parent's report of it */
static const char *folder;
static FILE *trace;
static struct plan no_plan;

static const int WATCHED[] = {
    SYS_open, SYS_openat, SYS_creat, SYS_openat2, SYS_read, SYS_pread64, SYS_readv, SYS_write, SYS_pwrite64,
    SYS_writev, SYS_pwritev, SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_rename, SYS_renameat, SYS_renameat2,
    SYS_link, SYS_linkat, SYS_symlink, SYS_symlinkat, SYS_unlink, SYS_unlinkat, SYS_mkdir, SYS_mkdirat, SYS_rmdir,
    SYS_fsync, SYS_fdatasync, SYS_sync, SYS_sync_file_range, SYS_close, SYS_getdents64, SYS_mmap, SYS_copy_file_range,
    SYS_sendfile, SYS_splice, SYS_pwritev2, SYS_io_uring_setup, SYS_prctl
};

static void fail(const char *what) {
    perror(what);
    exit(125);
}

static const char *name_of(unsigned operation) {
    static const char *NAMES[] = {
        "open-read", "open-write", "read", "write", "truncate", "sync", "rename", "link", "unlink", "mkdir", "rmdir",
        "close", "list", "other"
    };
    return NAMES[__builtin_ctz(operation)];
}

/* ---------------------------------------------------------------- reading from a traced process */

static int read_text(pid_t tid, unsigned long address, char *text) {
    size_t done = 0;
    while (done < MAX_PATH - 1) { /* page by page: the next page may not be mapped */
        size_t chunk = 4096 - (address + done) % 4096;
        if (chunk > MAX_PATH - 1 - done) chunk = MAX_PATH - 1 - done;
        struct iovec here = {text + done, chunk}, there = {(void *)(address + done), chunk};
        ssize_t n = process_vm_readv(tid, &here, 1, &there, 1, 0);
        if (n <= 0) return -1;
        if (memchr(text + done, 0, n)) return 0;
        done += n;
    }
    return -1;
}

static int read_bytes(pid_t tid, unsigned long address, void *to, size_t length) {
    struct iovec here = {to, length}, there = {(void *)address, length};
    return process_vm_readv(tid, &here, 1, &there, 1, 0) == (ssize_t)length ? 0 : -1;
}

static int link_of(pid_t tid, const char *what, char *path) {
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/%s", tid, what);
    ssize_t n = readlink(name, path, MAX_PATH - 1);
    if (n < 0) return -1;
    path[n] = 0;
    return 0;
}

static int path_of_fd(pid_t tid, int fd, char *path) {
    char what[32];
    snprintf(what, sizeof what, "fd/%d", fd);
    return link_of(tid, what, path);
}

/* The absolute path of a path argument. */
static int path_of(pid_t tid, int dirfd, unsigned long address, char *path) {
    char text[MAX_PATH], base[MAX_PATH];
    if (read_text(tid, address, text)) return -1;
    if (text[0] == '/') {
        strcpy(path, text);
        return 0;
    }
    if (dirfd == AT_FDCWD ? link_of(tid, "cwd", base) : path_of_fd(tid, dirfd, base)) return -1;
    return snprintf(path, MAX_PATH, "%s/%s", base, text) < MAX_PATH ? 0 : -1;
}

static int is_inside(const char *path) {
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == 0);
}

/* A number of /proc/TID/fdinfo/FD, such as "pos:"; -1 where there is none. */
static long info_of(pid_t tid, int fd, const char *format) {
    char name[64], line[128];
    long value = -1;
    snprintf(name, sizeof name, "/proc/%d/fdinfo/%d", tid, fd);
    FILE *info = fopen(name, "r");
    if (!info) return -1;
    while (fgets(line, sizeof line, info))
        if (sscanf(line, format, &value) == 1) break;
    fclose(info);
    return value;
}

/* ---------------------------------------------------------------- what a call is */

static void take_content(pid_t tid, struct call *call, unsigned long address, size_t length) {
    call->content = realloc(call->content, call->length + length + 1);
    if (!call->content) fail("memory");
    if (read_bytes(tid, address, call->content + call->length, length)) return;
    call->length += length;
}

static void take_vectors(pid_t tid, struct call *call, unsigned long address, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct iovec vector;
        if (read_bytes(tid, address + i * sizeof vector, &vector, sizeof vector)) return;
        take_content(tid, call, (unsigned long)vector.iov_base, vector.iov_len);
    }
}

static unsigned kind_of_open(long flags) {
    return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC) ? OPEN_WRITE : OPEN_READ;
}

/* The operation of a call on two paths or one, with the paths filled in; 0 where it is none. */
static unsigned path_operation(pid_t tid, struct user_regs_struct *r, struct call *c) {
    unsigned long a = r->rdi, b = r->rsi, d = r->rdx, e = r->r10;
    switch (r->orig_rax) {
    case SYS_open: c->offset = b; return path_of(tid, AT_FDCWD, a, c->path) ? 0 : kind_of_open(b);
    case SYS_creat: c->offset = O_CREAT | O_TRUNC | O_WRONLY; return path_of(tid, AT_FDCWD, a, c->path) ? 0 : OPEN_WRITE;
    case SYS_openat: c->offset = d; return path_of(tid, a, b, c->path) ? 0 : kind_of_open(d);
    case SYS_openat2: return path_of(tid, a, b, c->path) ? 0 : OTHER;
    case SYS_truncate: c->offset = b; return path_of(tid, AT_FDCWD, a, c->path) ? 0 : TRUNCATE;
    case SYS_rename:
        return path_of(tid, AT_FDCWD, a, c->path) || path_of(tid, AT_FDCWD, b, c->other) ? 0 : RENAME;
    case SYS_renameat:
    case SYS_renameat2:
        if (r->orig_rax == SYS_renameat2 && r->r8 & 2) return OTHER; /* RENAME_EXCHANGE */
        return path_of(tid, a, b, c->path) || path_of(tid, d, e, c->other) ? 0 : RENAME;
    case SYS_link: return path_of(tid, AT_FDCWD, a, c->path) || path_of(tid, AT_FDCWD, b, c->other) ? 0 : LINK;
    case SYS_linkat: return path_of(tid, a, b, c->path) || path_of(tid, d, e, c->other) ? 0 : LINK;
    case SYS_symlink: return path_of(tid, AT_FDCWD, b, c->path) ? 0 : OTHER;
    case SYS_symlinkat: return path_of(tid, b, d, c->path) ? 0 : OTHER;
    case SYS_unlink: return path_of(tid, AT_FDCWD, a, c->path) ? 0 : UNLINK;
    case SYS_unlinkat: return path_of(tid, a, b, c->path) ? 0 : d & AT_REMOVEDIR ? RMDIR : UNLINK;
    case SYS_mkdir: return path_of(tid, AT_FDCWD, a, c->path) ? 0 : MKDIR;
    case SYS_mkdirat: return path_of(tid, a, b, c->path) ? 0 : MKDIR;
    case SYS_rmdir: return path_of(tid, AT_FDCWD, a, c->path) ? 0 : RMDIR;
    case SYS_sync: /* of everything: the other path tells it from that of the folder itself */
        strcpy(c->path, folder);
        strcpy(c->other, folder);
        return SYNC;
    }
    return 0;
}

/* The same for a call on an open file; `fd` says which one. */
static unsigned file_operation(struct user_regs_struct *r, int *fd) {
    *fd = r->rdi;
    switch (r->orig_rax) {
    case SYS_read: case SYS_pread64: case SYS_readv: return READ;
    case SYS_write: case SYS_pwrite64: case SYS_writev: case SYS_pwritev: return WRITE;
    case SYS_ftruncate: return TRUNCATE;
    case SYS_fsync: case SYS_fdatasync: return SYNC;
    case SYS_close: return CLOSE;
    case SYS_getdents64: return LIST;
    case SYS_copy_file_range: *fd = r->rdx; return OTHER;
    case SYS_splice: *fd = r->rdx; return OTHER;
    case SYS_mmap:
        *fd = r->r8;
        return (r->rdx & PROT_WRITE) && (r->r10 & MAP_TYPE) != MAP_PRIVATE && *fd >= 0 ? OTHER : 0;
    case SYS_fallocate: case SYS_sendfile: case SYS_pwritev2: case SYS_sync_file_range: return OTHER;
    }
    return 0;
}

static void take_written(pid_t tid, struct user_regs_struct *r, struct call *call) {
    if (r->orig_rax == SYS_write || r->orig_rax == SYS_pwrite64) take_content(tid, call, r->rsi, r->rdx);
    else take_vectors(tid, call, r->rsi, r->rdx);
    call->offset = r->orig_rax == SYS_pwrite64 || r->orig_rax == SYS_pwritev ? (long)r->r10 : -1;
}

/* Fill in the call that a task is about to make; 0 where it does not concern the folder. */
static unsigned classify(pid_t tid, struct user_regs_struct *r, struct call *call) {
    call->path[0] = call->other[0] = 0;
    call->length = 0;
    call->offset = 0;
    call->fd = -1;
    unsigned operation = path_operation(tid, r, call);
    if (operation) return is_inside(call->path) || is_inside(call->other) ? operation : 0;
    if (!(operation = file_operation(r, &call->fd))) return 0;
    if (path_of_fd(tid, call->fd, call->path) || !is_inside(call->path)) return 0;
    if (operation == CLOSE && (info_of(tid, call->fd, "flags: %lo") & O_ACCMODE) == O_RDONLY) return 0; /* loses nothing */
    if (operation == WRITE) take_written(tid, r, call);
    if (operation == TRUNCATE) call->offset = r->rsi;
    return operation;
}

/* ---------------------------------------------------------------- stops */

static struct task *task_of(pid_t tid) {
    if (!tasks[tid]) {
        if (!(tasks[tid] = calloc(1, sizeof(struct task)))) fail("memory");
        tasks[tid]->plan = &no_plan;
    }
    return tasks[tid];
}

static void go_on(int request, pid_t tid, int signal) {
    if (ptrace(request, tid, 0, signal) && errno != ESRCH) fail("ptrace");
}

static void write_record(pid_t tid, struct call *call, long result) {
    size_t length = call->operation == WRITE && result > 0 ? (size_t)result : 0;
    long offset = call->offset;
    if (length > call->length) length = call->length;
    if (call->operation == WRITE && offset < 0) offset = info_of(tid, call->fd, "pos: %ld") - (long)length;
    fprintf(trace, "%s\t%d\t%ld\t%d\t%ld\t%zu\t%s\t%s\n", name_of(call->operation), tid, result, call->fault, offset,
            length, call->path, call->other);
    fwrite(call->content ? call->content : "", 1, length, trace);
    fputc('\n', trace);
    fflush(trace);
}

/* Answer a request of a traced process. */
static void answer(pid_t tid, struct user_regs_struct *r) {
    struct task *task = task_of(tid);
    long result = 0;
    if (r->rdi == REQUEST_COUNT) result = task->plan->count;
    else {
        struct plan *plan = calloc(1, sizeof *plan); /* other processes may still use the old one */
        if (!plan) fail("memory");
        plan->record = r->rdi == REQUEST_RECORD;
        plan->mask = r->rsi;
        plan->mode = r->rdx >> 16;
        plan->error = r->rdx & 0xffff;
        plan->first = r->r10;
        plan->persistent = r->r8;
        task->plan = plan;
    }
    r->orig_rax = -1;
    r->rax = result;
    ptrace(PTRACE_SETREGS, tid, 0, r);
}

static int is_due(struct plan *plan, unsigned operation) {
    if (!(plan->mask & operation)) return 0;
    plan->count++;
    return plan->mode && (plan->count == plan->first || (plan->persistent && plan->count > plan->first));
}

/* Before a call: let it be, watch its return, or make it fail. */
static void on_call(pid_t tid) {
    struct user_regs_struct r;
    if (ptrace(PTRACE_GETREGS, tid, 0, &r)) return; /* it was killed */
    struct task *task = task_of(tid);
    if (r.orig_rax == SYS_prctl) {
        if (r.rdi >= REQUEST_FAULT && r.rdi <= REQUEST_COUNT) answer(tid, &r);
        return go_on(PTRACE_CONT, tid, 0);
    }
    if (r.orig_rax == SYS_io_uring_setup) { /* its operations cannot be seen: programs do without it */
        r.orig_rax = -1;
        r.rax = -ENOSYS;
        ptrace(PTRACE_SETREGS, tid, 0, &r);
        return go_on(PTRACE_CONT, tid, 0);
    }
    struct plan *plan = task->plan;
    struct call *call = &task->call;
    if (plan == &no_plan || !(call->operation = classify(tid, &r, call))) return go_on(PTRACE_CONT, tid, 0);
    call->fault = is_due(plan, call->operation) ? plan->mode : 0;
    call->error = plan->error;
    if (!plan->record && !call->fault) return go_on(PTRACE_CONT, tid, 0);
    if (call->fault == FAULT_KILL) {
        write_record(tid, call, -EINTR);
        kill(tid, SIGKILL);
        return;
    }
    if (call->fault == FAULT_ERROR && call->operation != CLOSE) {
        r.orig_rax = -1;
        r.rax = -call->error;
        ptrace(PTRACE_SETREGS, tid, 0, &r);
    }
    if (call->fault == FAULT_SHORT_WRITE && r.rdx > 1 && call->operation == WRITE) {
        r.rdx /= 2; /* bytes, or vectors */
        ptrace(PTRACE_SETREGS, tid, 0, &r);
    }
    call->active = 1;
    go_on(PTRACE_SYSCALL, tid, 0);
}

/* After a call that is watched. */
static void on_return(pid_t tid) {
    struct task *task = task_of(tid);
    struct call *call = &task->call;
    struct user_regs_struct r;
    if (call->active && !ptrace(PTRACE_GETREGS, tid, 0, &r)) {
        if (call->fault == FAULT_ERROR && call->operation == CLOSE) { /* Linux closes the file also where it fails */
            r.rax = -call->error;
            ptrace(PTRACE_SETREGS, tid, 0, &r);
        }
        write_record(tid, call, (long)r.rax);
    }
    call->active = 0;
    go_on(PTRACE_CONT, tid, 0);
}

static void on_child(pid_t tid) {
    unsigned long child;
    if (ptrace(PTRACE_GETEVENTMSG, tid, 0, &child)) return;
    task_of(child)->plan = task_of(tid)->plan;
    if (waiting[child] == 2) {
        waiting[child] = 0;
        go_on(PTRACE_CONT, child, 0);
    } else
        waiting[child] = 1; /* reported, not stopped yet */
}

static void on_stop(pid_t tid, int status) {
    int event = status >> 16, signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_SECCOMP) return on_call(tid);
    if (signal == (SIGTRAP | 0x80)) return on_return(tid);
    if (event == PTRACE_EVENT_STOP) {
        if (signal != SIGTRAP) return go_on(PTRACE_LISTEN, tid, 0); /* a group that was stopped */
        if (!tasks[tid]) {
            waiting[tid] = 2; /* stopped, not reported yet */
            return;
        }
        waiting[tid] = 0;
        return go_on(PTRACE_CONT, tid, 0);
    }
    if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) on_child(tid);
    go_on(PTRACE_CONT, tid, event ? 0 : signal);
}

static void forget(pid_t tid) {
    if (tasks[tid]) free(tasks[tid]->call.content);
    free(tasks[tid]);
    tasks[tid] = NULL;
    waiting[tid] = 0;
}

/* ---------------------------------------------------------------- start */

static void install_filter(void) {
    enum { COUNT = sizeof WATCHED / sizeof *WATCHED };
    struct sock_filter code[COUNT + 3];
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++)
        code[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, WATCHED[i], COUNT - i, 0);
    code[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    struct sock_fprog program = {COUNT + 3, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("seccomp");
}

static pid_t start(char **command) {
    int gate[2];
    char byte = 0;
    if (pipe2(gate, O_CLOEXEC)) fail("pipe");
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (read(gate[0], &byte, 1) != 1) _exit(125);
        install_filter();
        execvp(command[0], command);
        fail(command[0]);
    }
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                   PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, child, 0, options)) fail("ptrace");
    task_of(child);
    if (write(gate[1], &byte, 1) != 1) fail("pipe");
    return child;
}

int main(int count, char **arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: tracer FOLDER TRACE COMMAND...\n");
        return 2;
    }
    folder = realpath(arguments[1], NULL);
    if (!folder || !(trace = fopen(arguments[2], "we"))) fail(arguments[1]);
    signal(SIGINT, SIG_IGN); /* the command's business */
    pid_t command = start(arguments + 3);
    for (;;) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0) fail("waitpid");
        if (WIFSTOPPED(status)) on_stop(tid, status);
        else {
            forget(tid);
            if (tid == command) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }
}
