/* How a C program starts and ends.
 *
 * A program defines `int main(void)`: 0, or the number of the check that failed, is its exit status.
 * What it finds when it starts is described in user/proto/src/layout.rs.
 */
#ifndef START_H
#define START_H

#include "services.h"

/* References that every program has. */
enum {
    START_NAMES = 0x10000,
    START_MEMORY = 0x10010,
    START_SPACE = 0x10020,
    START_THREAD = 0x10030,
};

int main(void);

/* The note that tells a native program from a Linux program, and the one that says where the list
 * of its calls is. */
__asm__(".pushsection .note.fermata, \"a\", @note\n"
        ".p2align 2\n"
        ".long 8, 0, 1\n"
        ".asciz \"Fermata\"\n"
        ".long 8, 8, 2\n"
        ".asciz \"Fermata\"\n"
        ".long __start_fermata_sites - .\n"
        ".long __stop_fermata_sites - .\n"
        ".popsection\n"
        ".hidden __start_fermata_sites\n"
        ".hidden __stop_fermata_sites");

__asm__(".globl _start\n"
        "_start:\n"
        "xor %ebp, %ebp\n"
        "and $-16, %rsp\n"
        "call start\n"
        "ud2");

/* Ends the process with this status. */
static inline void leave(uint8_t status)
{
    struct fermata_session init = fermata_names_at(START_NAMES);
    for (;;)
        fermata_names_exit(&init, status);
}

__attribute__((used)) static void start(void)
{
    leave((uint8_t)main());
}

/* The compiler makes calls of these. */
__attribute__((used)) void *memcpy(void *to, const void *from, size_t length)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    for (size_t i = 0; i < length; i++)
        t[i] = f[i];
    return to;
}

__attribute__((used)) void *memset(void *to, int value, size_t length)
{
    uint8_t *t = to;
    for (size_t i = 0; i < length; i++)
        t[i] = (uint8_t)value;
    return to;
}

#endif
