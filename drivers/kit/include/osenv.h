/* osenv: what a driver needs of the system that it runs in, as the appendix of K. Van Maren, The Fluke Device
 * Driver Framework, defines it. The comments in ../src describe each function; README.md says what is missing.
 *
 * SPDX-License-Identifier: MIT */
#ifndef OSENV_H
#define OSENV_H

typedef unsigned long oskit_size_t;
typedef unsigned long oskit_addr_t;
typedef int oskit_error_t;
typedef int oskit_bool_t;

/* A.1 Interrupts: of one line (irq), and of all (intr). */
#define OSENV_IRQ_SHAREABLE 1
/* Not in the appendix: the line is tried, and no message is written if the driver cannot have it. */
#define OSENV_IRQ_PROBE 2
/* Not in the appendix: the handler says whether its device had anything to do. A line that rings for nothing is not served all the time. */
int osenv_irq_alloc(int irq, int (*handler)(void *), void *data, int flags);
void osenv_irq_free(int irq, int (*handler)(void *), void *data);
void osenv_irq_disable(int irq);
void osenv_irq_enable(int irq);
int osenv_irq_pending(int irq);
void osenv_intr_disable(void);
void osenv_intr_enable(void);
int osenv_intr_enabled(void);

/* A.2 Sleep and wakeup */
typedef struct { unsigned long words[2]; } osenv_sleeprec_t;
void osenv_sleep_init(osenv_sleeprec_t *record);
void osenv_sleep(osenv_sleeprec_t *record);
void osenv_wakeup(osenv_sleeprec_t *record);

/* A.3 Memory */
typedef unsigned osenv_memflags_t;
#define OSENV_AUTO_SIZE 1
#define OSENV_PHYS_WIRED 2
#define OSENV_VIRT_EQ_PHYS 4
#define OSENV_PHYS_CONTIG 8
#define OSENV_NONBLOCKING 16
#define OSENV_ISADMA_MEM 32
void *osenv_mem_alloc(oskit_size_t size, osenv_memflags_t flags, unsigned align);
void osenv_mem_free(void *block, osenv_memflags_t flags, oskit_size_t size);
int osenv_mem_map_phys(oskit_addr_t physical, oskit_size_t size, void **address, int flags);
oskit_addr_t osenv_mem_get_phys(oskit_addr_t address);
oskit_addr_t osenv_mem_get_virt(oskit_addr_t physical);
oskit_addr_t osenv_mem_phys_max(void);
/* Not in the appendix: the bytes of a block; 0 if it is no block. */
oskit_size_t osenv_mem_size(const void *block);

/* A.4 I/O space */
oskit_bool_t osenv_io_avail(oskit_addr_t port, oskit_size_t size);
oskit_error_t osenv_io_alloc(oskit_addr_t port, oskit_size_t size);
void osenv_io_free(oskit_addr_t port, oskit_size_t size);
/* Not in the appendix: whether the program has the ports, of which the first is below 64 Ki. Glue asks before each
 * access. Most accesses are in the range that was looked up last; osenv_io_last has its first port and, in the
 * upper half, the port behind its last, or 0 if the range was given back. */
extern unsigned long osenv_io_last __attribute__((visibility("hidden")));
oskit_bool_t osenv_io_look(oskit_addr_t port, oskit_size_t size);
static inline oskit_bool_t osenv_io_granted(oskit_addr_t port, oskit_size_t size)
{
    unsigned long last = *(volatile unsigned long *)&osenv_io_last;

    return ((unsigned)last <= port && port + size <= last >> 32) || osenv_io_look(port, size);
}

/* A.6 Timers */
void osenv_timer_init(void);
void osenv_timer_spin(long nanoseconds);
void osenv_timer_register(void (*function)(void), int frequency);
void osenv_timer_unregister(void (*function)(void), int frequency);
/* Not in the appendix: nanoseconds since the machine began. */
unsigned long osenv_timer_now(void);

/* A.7.1 PCI. `port` is a multiple of 4. */
int osenv_pci_config_init(void);
int osenv_pci_config_read(char bus, char device, char function, char port, unsigned *data);
int osenv_pci_config_write(char bus, char device, char function, char port, unsigned data);

/* A.7.2 ISA DMA */
int osenv_isadma_alloc(int channel);
void osenv_isadma_free(int channel);
/* Not in the appendix, where drivers program the controller themselves. The flags: from the device to memory
 * instead of to the device; start again at the beginning when the end is reached. */
#define OSENV_ISADMA_TO_MEMORY 1
#define OSENV_ISADMA_AGAIN 2
int osenv_isadma_start(int channel, oskit_addr_t physical, oskit_size_t size, int flags);
void osenv_isadma_stop(int channel);
oskit_size_t osenv_isadma_left(int channel);

/* A.8 Log */
enum {
    OSENV_LOG_EMERG, OSENV_LOG_ALERT, OSENV_LOG_CRIT, OSENV_LOG_ERR,
    OSENV_LOG_WARNING, OSENV_LOG_NOTICE, OSENV_LOG_INFO, OSENV_LOG_DEBUG,
};
void osenv_vlog(int priority, const char *format, void *list);
void osenv_log(int priority, const char *format, ...);

/* A.9 Panic */
_Noreturn void osenv_vpanic(const char *format, void *list);
_Noreturn void osenv_panic(const char *format, ...);

/* The formats of the log: as the C library's, with %d %i %u %x %X %o %c %s %p %%, their flags, widths and lengths,
 * and %pM, an Ethernet address. */
int osenv_vformat(char *to, oskit_size_t size, const char *format, __builtin_va_list list);

#endif
