/* Two threads in C, with the kernel's own mutex and conditions between them: one finds primes, the other
 * adds them up. The exit status is 0 if the sum is right.
 *
 * `start.h` is how a C program starts and ends; `fermata.h` has the calls, and is made from the table of
 * calls (`./fermata reference`). There is no C library. */
#include "start.h"

/* Objects live in memory of the program: their addresses are their handles. */
static _Alignas(16) uint8_t objects[5][FERMATA_OBJECT_SIZE];

enum { MUTEX, NOT_EMPTY, NOT_FULL, THREAD };

static uint64_t handle(int object)
{
    return (uint64_t)(uintptr_t)objects[object];
}

/* The mutex guards these: primes that were found and not yet added. */
static unsigned queue[8];
static unsigned first, count;
static const unsigned ROOM = sizeof queue / sizeof queue[0];

static void put(unsigned value)
{
    fermata_mutex_lock(handle(MUTEX));
    /* The wait may return for no reason: hence the loop. */
    while (count == ROOM)
        fermata_cond_wait(handle(NOT_FULL), handle(MUTEX));
    queue[(first + count++) % ROOM] = value;
    fermata_cond_signal(handle(NOT_EMPTY));
    fermata_mutex_unlock(handle(MUTEX));
}

static unsigned take(void)
{
    fermata_mutex_lock(handle(MUTEX));
    while (count == 0)
        fermata_cond_wait(handle(NOT_EMPTY), handle(MUTEX));
    unsigned value = queue[first];
    first = (first + 1) % ROOM;
    count--;
    fermata_cond_signal(handle(NOT_FULL));
    fermata_mutex_unlock(handle(MUTEX));
    return value;
}

/* All primes below 1,000, and 0 for the end. */
static void find(void)
{
    for (unsigned n = 2; n < 1000; n++) {
        unsigned d = 2;
        while (d * d <= n && n % d != 0)
            d++;
        if (d * d > n)
            put(n);
    }
    put(0);
    for (;;)
        fermata_thread_wait_interrupt();
}

static _Alignas(16) uint8_t stack[16384];

static int begin(void)
{
    if (fermata_mutex_create(handle(MUTEX), 0) != FERMATA_OK ||
        fermata_cond_create(handle(NOT_EMPTY), 0) != FERMATA_OK ||
        fermata_cond_create(handle(NOT_FULL), 0) != FERMATA_OK ||
        fermata_thread_create(handle(THREAD), 0) != FERMATA_OK)
        return 1;
    /* A new thread is stopped. Its state says where it begins. */
    struct fermata_thread_state thread;
    if (fermata_thread_get_state(handle(THREAD), &thread, 0, 0, 0) != FERMATA_OK)
        return 2;
    thread.registers.rip = (uint64_t)(uintptr_t)find;
    thread.registers.rsp = (uint64_t)(uintptr_t)(stack + sizeof stack - 8);
    thread.registers.rflags = 0x202;
    thread.priority = 8;
    if (fermata_thread_set_state(handle(THREAD), &thread, START_SPACE, 0, 0) != FERMATA_OK)
        return 3;
    return fermata_thread_resume(handle(THREAD)) == FERMATA_OK ? 0 : 4;
}

int main(void)
{
    int failed = begin();
    if (failed)
        return failed;
    unsigned sum = 0, prime;
    while ((prime = take()) != 0)
        sum += prime;
    return sum == 76127 ? 0 : 5;
}
