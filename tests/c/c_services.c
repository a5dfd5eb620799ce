/* Services from C: a file is written, read and removed by the stubs of services.h, and what is refused is. Its exit
 * status is 0, or the number of the check that failed. */
#include "start.h"

/* Where references are made. */
static _Alignas(16) struct { uint64_t words[2]; } references[2];

static uint64_t handle(unsigned n)
{
    return (uint64_t)&references[n];
}

/* Errors, by number. */
enum { NOT_FOUND = 1, INVALID = 6, UNSUPPORTED = 14 };

static const char PATH[] = "/tmp/c_services";
static const char TEXT[] = "what was written";

static int same(const char *a, const char *b, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

#define CHECK(condition) \
    do { \
        check++; \
        if (!(condition)) \
            return check; \
    } while (0)

int main(void)
{
    int check = 0;
    CHECK(fermata_reference_create(handle(0), 0) == FERMATA_OK);
    CHECK(fermata_reference_create(handle(1), 0) == FERMATA_OK);

    /* A shared interface: no session. */
    struct fermata_session init = fermata_names_at(START_NAMES);
    CHECK(fermata_names_lookup(&init, "nobody", 6, handle(0)) == NOT_FOUND);
    CHECK(fermata_names_lookup(&init, "fs", 2, handle(0)) == 0);
    /* A port of another interface refuses it. */
    struct fermata_session wrong = fermata_shared(START_NAMES, FERMATA_SUPERVISOR_ID);
    CHECK(fermata_supervisor_control(&wrong, 1, handle(1)) == UNSUPPORTED);

    /* A session; who asks is known by its own port at init. */
    struct fermata_session files;
    CHECK(fermata_open(handle(0), FERMATA_CONSOLE_ID, START_NAMES, handle(1), &files) == UNSUPPORTED);
    CHECK(fermata_open(handle(0), FERMATA_FILES_ID, START_NAMES, handle(1), &files) == 0);

    uint64_t file, size;
    uint32_t mode, written;
    size_t length = sizeof PATH - 1;
    /* 5: make it, cut it to nothing. */
    CHECK(fermata_files_open_file(&files, 5, 0600, PATH, length, &file, &mode, &size) == 0);
    CHECK(size == 0 && (mode & 0777) == 0600);
    CHECK(fermata_files_write(&files, file, 0, TEXT, sizeof TEXT, &written) == 0);
    CHECK(written == sizeof TEXT);

    char into[64];
    size_t came;
    CHECK(fermata_files_read(&files, file, 0, into, sizeof into, &came) == 0);
    CHECK(came == sizeof TEXT && same(into, TEXT, came));
    CHECK(fermata_files_read(&files, file, 5, into, 3, &came) == 0);
    CHECK(came == 3 && same(into, TEXT + 5, came));
    CHECK(fermata_files_read(&files, file, sizeof TEXT, into, sizeof into, &came) == 0);
    CHECK(came == 0);

    uint64_t end;
    CHECK(fermata_files_append(&files, file, "more", 4, &written, &end) == 0);
    CHECK(written == 4 && end == sizeof TEXT);
    CHECK(fermata_files_close(&files, file) == 0);
    CHECK(fermata_files_close(&files, file) == NOT_FOUND);
    CHECK(fermata_files_unlink(&files, PATH, length) == 0);
    CHECK(fermata_files_unlink(&files, PATH, length) == NOT_FOUND);

    /* The program's account, a session that it has from the start: a segment, which is made once. */
    struct fermata_session account = fermata_session_at(START_MEMORY);
    uint64_t total, room, taken, done;
    CHECK(fermata_account_usage(&account, &total, &room, &taken) == 0);
    CHECK(taken > 0 && room > 0 && room < total);
    account.number = 7;
    CHECK(fermata_account_create(&account, 0x3000, handle(0)) == 0);
    CHECK(account.number == 8);
    account.number = 7;
    CHECK(fermata_account_create(&account, 0x3000, handle(0)) == 0);
    struct fermata_session segment = fermata_segment_at(handle(1));
    CHECK(fermata_segment_populate(&segment, 0, 0x3000, &done) == 0 && done == 0x3000);
    CHECK(fermata_segment_usage(&segment, &total, &room, &taken) == 0 && taken == 0x3000);
    CHECK(fermata_segment_discard(&segment, 0x1000, 1, &done) == INVALID);
    CHECK(fermata_segment_destroy(&segment) == 0);
    CHECK(fermata_segment_destroy(&segment) == FERMATA_BROKEN);
    return 0;
}
