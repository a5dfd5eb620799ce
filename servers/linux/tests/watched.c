// Words that a debugger watches: the program writes them, reads into them, and writes to a file out of them, while
// another thread writes beside them; it protects the page, gives it back, and has children with a copy of it.
// watched NAME ROUNDS: begins when `gate` is 1, and goes on from the middle when it is 2.
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

volatile long words[512] __attribute__((aligned(4096)));
enum { OWN, FILED, SENT, OTHERS };

volatile long gate __attribute__((aligned(4096)));
volatile long waits;
// A page that comes and goes.
#define PLACE ((volatile long *)0x10000000)

static atomic_long counted;
static atomic_int over;

static void *count_beside(void *nothing) {
    while (!over) {
        words[OTHERS]++;
        counted++;
        usleep(1000);
    }
    return nothing;
}

static void wait_for(long wanted) {
    waits = wanted;
    while (gate < wanted)
        usleep(1000);
}

static int map(int flags) {
    void *at = mmap((void *)PLACE, 4096, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0);
    return at == (void *)PLACE;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    long rounds = atol(argv[2]);
    int ends[2], right = pipe(ends) == 0 && map(0);
    wait_for(1);
    pthread_t other;
    right &= pthread_create(&other, NULL, count_beside, NULL) == 0;
    for (long n = 1; n <= rounds; n++) {
        words[OWN] = n / 2;
        words[SENT] = n;
        right &= write(ends[1], (void *)&words[SENT], 8) == 8;
        right &= read(ends[0], (void *)&words[FILED], 8) == 8;
        right &= words[FILED] == n && words[OWN] == n / 2;
        PLACE[1] = n;
        if (n % 5 == 0) {
            right &= mprotect((void *)PLACE, 4096, PROT_READ) == 0 && PLACE[1] == n;
            right &= read(ends[0], NULL, 0) == 0;
            right &= mprotect((void *)PLACE, 4096, PROT_READ | PROT_WRITE) == 0;
        }
        if (n % 7 == 0) {
            right &= munmap((void *)PLACE, 4096) == 0 && map(0) && PLACE[1] == 0;
        }
        if (n % 10 == 0) {
            pid_t child = fork();
            if (child == 0) {
                int same = words[OWN] == n / 2;
                words[OWN] = -n;
                PLACE[1] = -n;
                _exit(same && words[OWN] == -n && PLACE[1] == -n ? 7 : 8);
            }
            int status = 0;
            right &= waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7;
        }
        if (n == rounds / 2) {
            char name[64];
            snprintf(name, sizeof name, "/tmp/half-%s", argv[1]);
            close(open(name, O_CREAT | O_WRONLY, 0644));
            wait_for(2);
        }
    }
    over = 1;
    pthread_join(other, NULL);
    right &= words[OTHERS] == counted;
    printf("%s: %ld rounds, %s\n", argv[1], rounds, right ? "right" : "wrong");
    return !right;
}
