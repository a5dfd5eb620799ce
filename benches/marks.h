/* What tools/count takes for the begin and the end of a stretch, for programs of Linux in C. */
#define BEGIN __asm__ volatile(".byte 0x0f,0x1f,0x80,1,0x46,0x52,0x4d" ::: "memory")
#define END __asm__ volatile(".byte 0x0f,0x1f,0x80,2,0x46,0x52,0x4d" ::: "memory")
