/* The instructions that tools/count takes for the beginning and the end of a stretch, for Linux programs in C. */
#define BEGIN __asm__ volatile(".byte 0x0f,0x1f,0x80,1,0x46,0x52,0x4d" ::: "memory")
#define END __asm__ volatile(".byte 0x0f,0x1f,0x80,2,0x46,0x52,0x4d" ::: "memory")
