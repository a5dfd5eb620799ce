/* The kernel's interface from C: objects, their states, a second thread, and messages between the
 * two, in registers and in memory. */
#include "start.h"

/* Leaves with the number of the check unless the condition holds. The numbers are counted, so a
 * failure says which check it was. */
static int checks;
#define CHECK(condition)       \
    do {                       \
        checks++;              \
        if (!(condition))      \
            return checks;     \
    } while (0)

/* Objects live here: the kernel's bytes, which the program never touches. */
static _Alignas(16) uint8_t slots[16][FERMATA_OBJECT_SIZE];

static uint64_t slot(int index)
{
    return (uint64_t)(uintptr_t)slots[index];
}

enum { MUTEX, COND, PORT, PORTSET, THREAD, SPACE, REFERENCE, PORT_REFERENCE, SET_REFERENCE, IDENTITY };

static int objects(void)
{
    CHECK(fermata_reference_create(slot(REFERENCE), 0) == FERMATA_OK);
    CHECK(fermata_mutex_create(slot(MUTEX), 0) == FERMATA_OK);
    CHECK(fermata_mutex_create(slot(MUTEX), 0) == FERMATA_IN_USE);
    CHECK(fermata_mutex_lock(slot(MUTEX)) == FERMATA_OK);
    CHECK(fermata_mutex_trylock(slot(MUTEX)) == FERMATA_WOULD_BLOCK);

    struct fermata_mutex_state mutex = {0};
    CHECK(fermata_mutex_get_state(slot(MUTEX), &mutex) == FERMATA_OK);
    CHECK(mutex.locked == 1);
    mutex.locked = 2;
    CHECK(fermata_mutex_set_state(slot(MUTEX), &mutex) == FERMATA_INVALID);
    CHECK(fermata_mutex_unlock(slot(MUTEX)) == FERMATA_OK);
    CHECK(fermata_mutex_unlock(slot(MUTEX)) == FERMATA_INVALID);

    uint64_t kind = 0;
    CHECK(fermata_mutex_reference(slot(MUTEX), slot(REFERENCE)) == FERMATA_OK);
    CHECK(fermata_reference_check(slot(REFERENCE), &kind) == FERMATA_OK);
    CHECK(kind == FERMATA_KIND_MUTEX);

    /* The identity outlives the body. */
    CHECK(fermata_reference_create(slot(IDENTITY), 0) == FERMATA_OK);
    CHECK(fermata_mutex_destroy(slot(MUTEX), slot(IDENTITY)) == FERMATA_OK);
    CHECK(fermata_reference_check(slot(REFERENCE), &kind) == FERMATA_OK);
    CHECK(fermata_mutex_create(slot(MUTEX), slot(IDENTITY)) == FERMATA_OK);
    mutex.locked = 1;
    CHECK(fermata_mutex_set_state(slot(MUTEX), &mutex) == FERMATA_OK);
    CHECK(fermata_mutex_trylock(slot(MUTEX)) == FERMATA_WOULD_BLOCK);
    CHECK(fermata_mutex_destroy(slot(MUTEX), 0) == FERMATA_OK);
    CHECK(fermata_reference_check(slot(REFERENCE), &kind) == FERMATA_DEAD);

    CHECK(fermata_cond_create(slot(COND), 0) == FERMATA_OK);
    CHECK(fermata_cond_get_state(slot(COND)) == FERMATA_OK);
    CHECK(fermata_cond_broadcast(slot(COND)) == FERMATA_OK);
    CHECK(fermata_cond_destroy(slot(COND), 0) == FERMATA_OK);

    struct fermata_space_state space = {.quota = 4096, .clock_offset = 1999};
    CHECK(fermata_space_create(slot(SPACE), 0) == FERMATA_OK);
    CHECK(fermata_space_set_state(slot(SPACE), &space, 0) == FERMATA_OK);
    space = (struct fermata_space_state){0};
    CHECK(fermata_space_get_state(slot(SPACE), &space, 0) == FERMATA_OK);
    CHECK(space.quota == 4096 && space.used == 0 && space.clock_offset == 1999);
    CHECK(fermata_space_destroy(slot(SPACE), 0) == FERMATA_OK);
    return 0;
}

static int clock(void)
{
    uint64_t before = 0, after = 0;
    CHECK(fermata_clock_get(&before) == FERMATA_OK);
    CHECK(fermata_thread_sleep_until(before + 1000000) == FERMATA_OK);
    CHECK(fermata_clock_get(&after) == FERMATA_OK);
    CHECK(after >= before + 1000000);
    CHECK(fermata_thread_wait_interrupt_until(before) == FERMATA_TIMED_OUT);
    return 0;
}

/* What the second thread does: it adds 1 to the first word of two requests, one that comes in
 * registers and one that comes in memory, and to each byte of a message on a connection. */
static uint64_t room[512];
static volatile int served;

static void serve(void)
{
    struct fermata_ipc registers = {.rdi = slot(PORTSET)};
    enum fermata_code code = fermata_server_wait_receive_short(&registers);
    if (code == FERMATA_CALL && registers.rdi == 77 && fermata_short_length(&registers) == 8)
        served++;

    struct fermata_ipc next = {
        .rax = 8 << 8,
        .rdi = slot(PORTSET),
        .rsi = registers.rsi + 1,
    };
    code = fermata_reply_wait_receive_short(&next);
    if (code == FERMATA_OK && next.rdi == 77)
        served++;

    /* A connection: the direction has been turned round, and it is accepted with the answer. */
    uint64_t word = next.rsi + 1;
    struct fermata_ipc answer = {
        .rdi = slot(PORTSET),
        .rsi = (uint64_t)(uintptr_t)&word,
        .rdx = sizeof word,
        .r12 = (uint64_t)(uintptr_t)room,
        .r13 = sizeof room,
    };
    code = fermata_server_ack_send_wait_receive(&answer);
    if (code == FERMATA_OK && answer.r13 == sizeof room - 4000)
        served++;
    uint8_t *bytes = (uint8_t *)room;
    for (int i = 0; i < 4000; i++)
        bytes[i]++;
    struct fermata_ipc last = {.rsi = (uint64_t)(uintptr_t)room, .rdx = 4000};
    if (fermata_server_ack_send_over(&last) == FERMATA_OK)
        served++;
    for (;;)
        fermata_thread_wait_interrupt();
}

static _Alignas(16) uint8_t stack[16384];

static int messages(void)
{
    CHECK(fermata_portset_create(slot(PORTSET), 0) == FERMATA_OK);
    CHECK(fermata_port_create(slot(PORT), 0) == FERMATA_OK);
    CHECK(fermata_reference_create(slot(SET_REFERENCE), 0) == FERMATA_OK);
    CHECK(fermata_reference_create(slot(PORT_REFERENCE), 0) == FERMATA_OK);
    CHECK(fermata_portset_reference(slot(PORTSET), slot(SET_REFERENCE)) == FERMATA_OK);
    CHECK(fermata_port_reference(slot(PORT), slot(PORT_REFERENCE)) == FERMATA_OK);
    const struct fermata_port_state port = {.alias = 77};
    CHECK(fermata_port_set_state(slot(PORT), &port, slot(SET_REFERENCE)) == FERMATA_OK);

    /* A new thread is stopped, and its state is that of a thread that has done nothing. */
    struct fermata_thread_state thread;
    CHECK(fermata_thread_create(slot(THREAD), 0) == FERMATA_OK);
    CHECK(fermata_thread_get_state(slot(THREAD), &thread, 0, 0, 0) == FERMATA_OK);
    CHECK(thread.stop_count == 1 && thread.client_stage == FERMATA_STAGE_NONE);
    thread.registers.rip = (uint64_t)(uintptr_t)serve;
    thread.registers.rsp = (uint64_t)(uintptr_t)(stack + sizeof stack - 8);
    thread.registers.rflags = 0x202;
    thread.priority = 8;
    thread.tag = 1234;
    CHECK(fermata_thread_set_state(slot(THREAD), &thread, START_SPACE, 0, 0) == FERMATA_OK);
    CHECK(fermata_thread_resume(slot(THREAD)) == FERMATA_OK);
    CHECK(fermata_thread_resume(slot(THREAD)) == FERMATA_INVALID);

    struct fermata_ipc request = {.rax = 8 << 8, .rdi = slot(PORT_REFERENCE), .rsi = 41};
    CHECK(fermata_call_short(&request) == FERMATA_OK);
    CHECK(fermata_short_length(&request) == 8 && request.rsi == 42);

    /* In registers there, in memory back: either side has the form it likes. */
    uint64_t word = 17, answer = 0;
    struct fermata_ipc exchange = {
        .rdi = slot(PORT_REFERENCE),
        .rsi = (uint64_t)(uintptr_t)&word,
        .rdx = sizeof word,
        .r12 = (uint64_t)(uintptr_t)&answer,
        .r13 = sizeof answer,
    };
    CHECK(fermata_client_connect_send_over_receive(&exchange) == FERMATA_OK);
    CHECK(exchange.rdx == 0 && exchange.r13 == 0 && answer == 18);
    /* The server has gone on to the next client. */
    CHECK(fermata_client_over() == FERMATA_WRONG_STAGE);

    /* Two segments to send, with the second one in a list. */
    static uint8_t out[4000], in[5000];
    for (int i = 0; i < 4000; i++)
        out[i] = (uint8_t)(i * 7);
    const struct fermata_segment more = {(uint64_t)(uintptr_t)(out + 1500), 2500};
    exchange = (struct fermata_ipc){
        .rdi = slot(PORT_REFERENCE),
        .rsi = (uint64_t)(uintptr_t)out,
        .rdx = 1500,
        .r10 = (uint64_t)(uintptr_t)&more,
        .r8 = 1,
        .r12 = (uint64_t)(uintptr_t)in,
        .r13 = sizeof in,
    };
    CHECK(fermata_client_connect_send_over_receive(&exchange) == FERMATA_OK);
    CHECK(exchange.r13 == sizeof in - 4000);
    int same = 0;
    for (int i = 0; i < 4000; i++)
        same += in[i] == (uint8_t)(out[i] + 1);
    CHECK(same == 4000);
    CHECK(fermata_client_disconnect() == FERMATA_OK);

    /* Soon it waits, and its frame says for what. */
    enum fermata_code code;
    do {
        fermata_thread_yield();
        code = fermata_thread_get_state(slot(THREAD), &thread, 0, 0, 0);
    } while (code == FERMATA_OK && thread.waiting != FERMATA_WAITING_INTERRUPT);
    CHECK(code == FERMATA_OK);
    CHECK(thread.registers.rax == FERMATA_SYS_THREAD_WAIT_INTERRUPT && thread.tag == 1234);
    CHECK(served == 4);
    CHECK(fermata_thread_destroy(slot(THREAD), 0) == FERMATA_OK);
    CHECK(fermata_port_destroy(slot(PORT), 0) == FERMATA_OK);
    request = (struct fermata_ipc){.rdi = slot(PORT_REFERENCE)};
    CHECK(fermata_call_short(&request) == FERMATA_DEAD);
    return 0;
}

int main(void)
{
    int failed = objects();
    if (!failed)
        failed = clock();
    if (!failed)
        failed = messages();
    return failed;
}
