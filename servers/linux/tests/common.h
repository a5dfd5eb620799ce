/* What several of these programs have. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>

/* Shows a call and what it returns. */
#define SHOW(call) do { errno = 0; long result = (long)(call); printf("%s: %ld", #call, result < 0 ? -1 : result); \
    if (result < 0) printf(" %s", strerror(errno)); printf("\n"); } while (0)

/* A number that no process has, on no Linux: one more than the largest. */
enum { NOBODY = 4194304 };

static void nap(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&time, &time)) {}
}

/* Waits until a process is in a call that waits, and a moment more. */
static void asleep(pid_t child) {
    char path[40], state = 0;
    sprintf(path, "/proc/%d/stat", child);
    while (state != 'S' && state != 'Z') {
        nap(10);
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
        if (file) fclose(file);
    }
    nap(20);
}

/* The exit code of a child, or the negative of the signal that has ended it. */
static int ended(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
