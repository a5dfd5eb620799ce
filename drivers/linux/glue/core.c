// SPDX-License-Identifier: GPL-2.0-or-later
/* What every driver needs: interrupts, memory, time, work, text, lines of the log. */
#include <linux/completion.h>
#include <linux/crc32.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/init.h>
#include <linux/interrupt.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "lx.h"

/* The process-level thread: counts what it has mapped (kmap_atomic), and handles a host's errors (libata). */
static struct task_struct task;
struct thread_info lx_thread_info = { .task = &task };
enum system_states system_state = SYSTEM_RUNNING;

/* Interrupts. User-Mode Linux keeps whether they are enabled in a variable, which headers read. */

int signals_enabled = 1;

void block_signals(void)
{
	osenv_intr_disable();
	signals_enabled = 0;
}

void unblock_signals(void)
{
	signals_enabled = 1;
	osenv_intr_enable();
}

int um_set_signals(int enable)
{
	int was = signals_enabled;

	if (enable)
		unblock_signals();
	else
		block_signals();
	return was;
}

/* Begins a handler in this context (HARDIRQ_OFFSET or SOFTIRQ_OFFSET). Returns the old signals_enabled. */
static int handler_begins(int context)
{
	int was = signals_enabled;

	signals_enabled = 0;
	lx_thread_info.preempt_count += context;
	return was;
}

static void handler_ends(int context, int was)
{
	lx_thread_info.preempt_count -= context;
	signals_enabled = was;
}

/* The handler of each line. */
static struct lx_handler {
	irq_handler_t handler;
	void *data;
	int irq;
} handlers[LX_LINES];

static int interrupt(void *data)
{
	struct lx_handler *h = data;
	int was = handler_begins(HARDIRQ_OFFSET);

	irqreturn_t found = h->handler(h->irq, h->data);

	handler_ends(HARDIRQ_OFFSET, was);
	return found != IRQ_NONE;
}

/* No thread_fn is supported, and only one handler for each line. */
int request_threaded_irq(unsigned int irq, irq_handler_t handler, irq_handler_t thread_fn,
			 unsigned long flags, const char *name, void *data)
{
	struct lx_handler *h = &handlers[irq];

	if (irq >= ARRAY_SIZE(handlers) || !handler || thread_fn)
		return -EINVAL;
	if (h->handler)
		return -EBUSY;
	*h = (struct lx_handler){ handler, data, irq };
	if (osenv_irq_alloc(irq, interrupt, h, flags & IRQF_SHARED ? OSENV_IRQ_SHAREABLE : 0)) {
		h->handler = NULL;
		return -EBUSY;
	}
	return 0;
}

/* The handler stays until the program ends. */
int devm_request_threaded_irq(struct device *dev, unsigned int irq, irq_handler_t handler,
			      irq_handler_t thread_fn, unsigned long flags, const char *name, void *data)
{
	return request_threaded_irq(irq, handler, thread_fn, flags, name, data);
}

const void *free_irq(unsigned int irq, void *data)
{
	osenv_irq_free(irq, interrupt, &handlers[irq]);
	handlers[irq].handler = NULL;
	return NULL;
}

/* As disable_irq_nosync(): no handler runs when this is called. */
void disable_irq(unsigned int irq)
{
	osenv_irq_disable(irq);
}

void disable_irq_nosync(unsigned int irq)
{
	osenv_irq_disable(irq);
}

void enable_irq(unsigned int irq)
{
	osenv_irq_enable(irq);
}

/* A handler is atomic to process context: none is running when this is called. */
void synchronize_irq(unsigned int irq) { }

/* Time. */

unsigned long volatile jiffies = INITIAL_JIFFIES;
static HLIST_HEAD(timers);
/* A timer became due while softirqs were disabled. */
static bool timers_wait;

static void run_timers(void)
{
	struct timer_list *timer;
	int was = handler_begins(SOFTIRQ_OFFSET);

again:
	hlist_for_each_entry(timer, &timers, entry)
		if (time_after_eq(jiffies, timer->expires)) {
			hlist_del_init(&timer->entry);
			timer->function(timer);
			goto again;
		}
	handler_ends(SOFTIRQ_OFFSET, was);
}

/* Called by the kit HZ times a second. */
static void tick(void)
{
	jiffies = INITIAL_JIFFIES + osenv_timer_now() / (NSEC_PER_SEC / HZ);
	if (in_softirq())
		timers_wait = true;
	else
		run_timers();
}

void __local_bh_enable_ip(unsigned long ip, unsigned int count)
{
	lx_thread_info.preempt_count -= count;
	while (timers_wait && !in_interrupt()) {
		int was = um_set_signals(0);

		timers_wait = false;
		run_timers();
		um_set_signals(was);
	}
}

void init_timer_key(struct timer_list *timer, void (*function)(struct timer_list *),
		    unsigned int flags, const char *name, struct lock_class_key *key)
{
	timer->entry.pprev = NULL;
	timer->function = function;
	timer->flags = flags;
}

int mod_timer(struct timer_list *timer, unsigned long expires)
{
	int was = um_set_signals(0), pending = timer_pending(timer);

	if (pending)
		hlist_del_init(&timer->entry);
	timer->expires = expires;
	hlist_add_head(&timer->entry, &timers);
	um_set_signals(was);
	return pending;
}

void add_timer(struct timer_list *timer)
{
	mod_timer(timer, timer->expires);
}

/* No timer runs when this is called. */
int timer_delete(struct timer_list *timer)
{
	int was = um_set_signals(0), pending = timer_pending(timer);

	if (pending)
		hlist_del_init(&timer->entry);
	um_set_signals(was);
	return pending;
}

int timer_delete_sync(struct timer_list *timer)
{
	return timer_delete(timer);
}

/* The next whole second, from a quarter of a second on; else the one before. */
unsigned long round_jiffies(unsigned long j)
{
	unsigned long rest = j % HZ, whole = j - rest + (rest < HZ / 4 ? 0 : HZ);

	return time_is_after_jiffies(whole) ? whole : j;
}

/* 2^32 / 1,000,000 for each microsecond. */
void __const_udelay(unsigned long xloops)
{
	osenv_timer_spin(xloops * 1000 / 4295 + 1);
}

void __udelay(unsigned long usecs)
{
	osenv_timer_spin(usecs * 1000);
}

/* Waiting. A sleeper is woken by the function that does what it waits for, or by its timer. */
struct sleeper {
	osenv_sleeprec_t record;
	struct timer_list timer;
	bool timed_out;
};

static void sleep_is_over(struct timer_list *timer)
{
	struct sleeper *s = from_timer(s, timer, timer);

	s->timed_out = true;
	osenv_wakeup(&s->record);
}

/* Sleeps until woken, or for so many jiffies. Returns the jiffies that were left. */
static unsigned long sleep(struct sleeper *s, unsigned long timeout)
{
	unsigned long end = jiffies + timeout;

	timer_setup(&s->timer, sleep_is_over, 0);
	if (timeout != MAX_SCHEDULE_TIMEOUT)
		mod_timer(&s->timer, end);
	osenv_sleep(&s->record);
	timer_delete(&s->timer);
	return s->timed_out || time_after_eq(jiffies, end) ? 0 : end - jiffies;
}

/* No function wakes the thread by its state: it sleeps to the end. */
signed long schedule_timeout_uninterruptible(signed long timeout)
{
	struct sleeper s = {};

	if (in_interrupt())
		osenv_panic("it sleeps in a handler, or with softirqs disabled");
	osenv_sleep_init(&s.record);
	return sleep(&s, timeout);
}

void msleep(unsigned int msecs)
{
	schedule_timeout_uninterruptible(msecs_to_jiffies(msecs) + 1);
}

/* Sleeps longer, to the next tick, as the interface allows. */
void usleep_range_state(unsigned long least, unsigned long most, unsigned int state)
{
	msleep(DIV_ROUND_UP(least, USEC_PER_MSEC));
}

unsigned long msleep_interruptible(unsigned int msecs)
{
	msleep(msecs);
	return 0;
}

/* There is one thread in process context, which nothing preempts: a mutex is always free, and no thread waits for
 * it. */
void mutex_lock(struct mutex *mutex) { }

/* The mutex has no state. */
void __mutex_init(struct mutex *mutex, const char *name, struct lock_class_key *key) { }

/* No thread waits for the mutex. */
void mutex_unlock(struct mutex *mutex) { }

/* Nothing else runs in process context. */
int __cond_resched(void)
{
	return 0;
}

/* Completions. One thread waits for them, the process-level thread. */

static struct sleeper *waiting;

/* A completion has no queue: the one thread that can wait for it is known. */
void __init_swait_queue_head(struct swait_queue_head *queue, const char *name,
			     struct lock_class_key *key) { }

/* Makes the waiting thread check its condition again. Interrupts are disabled. */
static void wake(void)
{
	if (waiting)
		osenv_wakeup(&waiting->record);
}

void complete(struct completion *completion)
{
	int was = um_set_signals(0);

	completion->done++;
	wake();
	um_set_signals(was);
}

/* Runs work while it waits, and that work may wait as well. */
unsigned long wait_for_completion_timeout(struct completion *completion, unsigned long timeout)
{
	struct sleeper s = {};

	if (in_interrupt())
		osenv_panic("it sleeps in a handler, or with softirqs disabled");
	osenv_sleep_init(&s.record);
	for (;;) {
		lx_run_works();
		waiting = &s;
		if (completion->done || !timeout)
			break;
		/* What was queued before anybody waited has woken nobody. */
		if (lx_has_works())
			continue;
		timeout = sleep(&s, timeout);
	}
	waiting = NULL;
	if (!completion->done)
		return 0;
	completion->done--;
	return timeout ? timeout : 1;
}

/* A thread that waits in another way is the process-level thread: it runs the work that there is, and checks again
 * at the next tick. */
void schedule(void)
{
	if (!lx_has_works())
		schedule_timeout_uninterruptible(1);
	lx_run_works();
}

/* Wait queues stay empty: no thread is woken by them (see schedule). */
void __init_waitqueue_head(struct wait_queue_head *queue, const char *name,
			   struct lock_class_key *key) { }

/* As __init_waitqueue_head(). */
void prepare_to_wait(struct wait_queue_head *queue, struct wait_queue_entry *entry, int state) { }

/* As __init_waitqueue_head(). */
void finish_wait(struct wait_queue_head *queue, struct wait_queue_entry *entry) { }

/* As __init_waitqueue_head(). */
int __wake_up(struct wait_queue_head *queue, unsigned int mode, int count, void *key)
{
	return 0;
}

/* Work, in the order in which it was queued. There is one queue for all. */

static LIST_HEAD(works);
struct workqueue_struct *system_wq;

struct workqueue_struct *alloc_workqueue(const char *format, unsigned int flags, int most, ...)
{
	return (void *)&works;
}

static void queue_work_now(struct work_struct *work)
{
	int was = um_set_signals(0);

	list_add_tail(&work->entry, &works);
	wake();
	um_set_signals(was);
	lx_came();
	lx_room();
}

bool queue_work_on(int cpu, struct workqueue_struct *queue, struct work_struct *work)
{
	bool fresh = !test_and_set_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(work));

	if (fresh)
		queue_work_now(work);
	return fresh;
}

/* Queues delayed work when its timer is due. */
void delayed_work_timer_fn(struct timer_list *timer)
{
	struct delayed_work *work = from_timer(work, timer, timer);

	queue_work_now(&work->work);
}

bool queue_delayed_work_on(int cpu, struct workqueue_struct *queue, struct delayed_work *work,
			   unsigned long delay)
{
	bool fresh = !test_and_set_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(&work->work));

	if (fresh && delay)
		mod_timer(&work->timer, jiffies + delay);
	else if (fresh)
		queue_work_now(&work->work);
	return fresh;
}

bool cancel_work_sync(struct work_struct *work)
{
	int was = um_set_signals(0);
	bool pending = test_and_clear_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(work));

	if (pending)
		list_del_init(&work->entry);
	um_set_signals(was);
	return pending;
}

bool cancel_delayed_work_sync(struct delayed_work *work)
{
	timer_delete(&work->timer);
	return cancel_work_sync(&work->work);
}

bool lx_has_works(void)
{
	return !list_empty(&works);
}

void lx_run_works(void)
{
	for (;;) {
		int was = um_set_signals(0);
		struct work_struct *work = list_first_entry_or_null(&works, struct work_struct, entry);

		if (work) {
			list_del_init(&work->entry);
			clear_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(work));
		}
		um_set_signals(was);
		if (!work)
			return;
		work->func(work);
	}
}

/* Memory: one arena; no address of it is used for anything else. */

unsigned long uml_physmem;
struct page *mem_map;
static struct page pages[LX_MEMORY / PAGE_SIZE];

static void memory_begins(void)
{
	char *block = kmalloc(PAGE_SIZE, GFP_KERNEL);

	/* Pages are only numbers. Of a page's contents libata reads one bit, which is zero. */
	mem_map = pages + ARRAY_SIZE(pages) - (osenv_mem_phys_max() >> PAGE_SHIFT);
	uml_physmem = (unsigned long)block - osenv_mem_get_phys((unsigned long)block);
	kfree(block);
}

void *__kmalloc(size_t size, gfp_t flags)
{
	void *block = osenv_mem_alloc(size, OSENV_AUTO_SIZE | OSENV_PHYS_WIRED | OSENV_PHYS_CONTIG, 1);

	if (block && flags & __GFP_ZERO)
		memset(block, 0, size);
	return block;
}

void *kmalloc_large(size_t size, gfp_t flags)
{
	return __kmalloc(size, flags);
}

void *__kmalloc_node_track_caller(size_t size, gfp_t flags, int node, unsigned long by)
{
	return __kmalloc(size, flags);
}

void kfree(const void *block)
{
	if (block)
		osenv_mem_free((void *)block, OSENV_AUTO_SIZE, 0);
}

size_t ksize(const void *block)
{
	return osenv_mem_size(block);
}

void *kmemdup(const void *from, size_t size, gfp_t flags)
{
	void *to = kmalloc(size, flags);

	return to ? memcpy(to, from, size) : NULL;
}

void *vzalloc(unsigned long size)
{
	return kzalloc(size, GFP_KERNEL);
}

void vfree(const void *block)
{
	kfree(block);
}

unsigned long __get_free_pages(gfp_t flags, unsigned int order)
{
	return (unsigned long)kmalloc(PAGE_SIZE << order, flags);
}

void free_pages(unsigned long address, unsigned int order)
{
	kfree((void *)address);
}

/* All memory is of one kind, and contiguous. */
bool is_vmalloc_addr(const void *address)
{
	return false;
}

/* As lib/crc32.c, bit by bit: for addresses of multicast groups. */
u32 crc32_le(u32 crc, const unsigned char *bytes, size_t size)
{
	while (size--) {
		crc ^= *bytes++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

/* Lines of the log. A format begins with its level (KERN_SOH and a digit), or has no level. */

void lx_print(int level, const char *prefix, const char *format, va_list list)
{
	char text[200];

	osenv_vformat(text, sizeof(text), format, list);
	osenv_log(level, "%s%s", prefix, text);
}

int _printk(const char *format, ...)
{
	int level = printk_get_level(format);
	va_list list;

	va_start(list, format);
	lx_print(level >= '0' && level <= '7' ? level - '0' : OSENV_LOG_INFO, "",
		 printk_skip_level(format), list);
	va_end(list);
	return 0;
}

/* Messages are never suppressed here. */
int __printk_ratelimit(const char *function)
{
	return 1;
}

void panic(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	osenv_vpanic(format, (void *)list);
}

/* WARN(). */
void __warn_printk(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	lx_print(OSENV_LOG_WARNING, "", format, list);
	va_end(list);
}

void warn_slowpath_fmt(const char *file, int line, unsigned int taint, const char *format, ...)
{
	osenv_log(OSENV_LOG_WARNING, "warning at %s:%d", file, line);
}

/* Called for a function that the glue does not have: the build makes a stub for it. */
void lx_missing(const char *name);
void lx_missing(const char *name)
{
	osenv_panic("it calls %s, which the glue does not have", name);
}

/* Start. */

/* A driver without parameters has neither symbol. */
extern const struct kernel_param __start___param[] __weak, __stop___param[] __weak;

/* Sets the parameter that lx_parameter names, as "driver.name=value". */
static void set_parameter(void)
{
	for (const struct kernel_param *p = __start___param; p < __stop___param; p++) {
		size_t length = strlen(p->name);

		if (strlen(lx_parameter) > length && !memcmp(p->name, lx_parameter, length) &&
		    lx_parameter[length] == '=' && p->ops->set)
			p->ops->set(lx_parameter + length + 1, p);
	}
}

/* Symbols of the linker: the module_init functions, whose section the build has renamed. */
extern initcall_t __start_lx_initcalls[], __stop_lx_initcalls[];

int lx_initcalls(void)
{
	int error = 0;

	set_parameter();
	for (initcall_t *call = __start_lx_initcalls; call < __stop_lx_initcalls && !error; call++)
		error = (*call)();
	return error;
}

void lx_begin(void)
{
	memory_begins();
	osenv_timer_init();
	/* The kit's clock began at boot: what waits from now on is not to be over at the first tick. */
	tick();
	osenv_timer_register(tick, HZ);
}
