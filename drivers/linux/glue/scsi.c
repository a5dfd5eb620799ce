// SPDX-License-Identifier: GPL-2.0-or-later
/* Disks on a SCSI bus: requests between the server (../src/disk.rs) and Linux's driver of one host adapter. This
 * replaces Linux's block layer and SCSI middle layer: commands are made, and their results judged, below. The
 * driver gets commands in process context or from the timer. */
#include <asm/unaligned.h>
#include <linux/async.h>
#include <linux/attribute_container.h>
#include <linux/blk-mq.h>
#include <linux/completion.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/timer.h>
#include <linux/transport_class.h>
#include <linux/workqueue.h>
#include <scsi/scsi.h>
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_dbg.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_eh.h>
#include <scsi/scsi_host.h>
#include <scsi/scsi_tcq.h>
#include <scsi/scsi_transport.h>
#include <scsi/scsi_transport_spi.h>

#include "lx.h"

/* The adapter, the target and its unit 0. There is only one of each. */
static struct Scsi_Host *host;
static struct scsi_target *target;
static struct scsi_device *disk;

/* The adapter. */

struct Scsi_Host *scsi_host_alloc(struct scsi_host_template *template, int private)
{
	struct Scsi_Host *made = kzalloc(sizeof(*made) + private, GFP_KERNEL);

	if (!made)
		return NULL;
	made->hostt = template;
	made->host_lock = &made->default_lock;
	made->this_id = template->this_id;
	made->can_queue = template->can_queue;
	made->cmd_per_lun = template->cmd_per_lun;
	made->sg_tablesize = template->sg_tablesize;
	made->max_sectors = template->max_sectors;
	made->max_id = 8;
	made->max_lun = 8;
	INIT_LIST_HEAD(&made->eh_cmd_q);
	INIT_LIST_HEAD(&made->eh_abort_list);
	made->shost_data = kzalloc(sizeof(struct spi_host_attrs), GFP_KERNEL);
	return made;
}

/* Adapters are never freed. */
void scsi_host_put(struct Scsi_Host *gone) { }

void scsi_remove_host(struct Scsi_Host *gone)
{
	host = NULL;
}

int scsi_add_host_with_dma(struct Scsi_Host *added, struct device *device, struct device *dma)
{
	added->shost_gendev.parent = device;
	if (!host)
		host = added;
	return 0;
}

/* Scanning is done later, by lx_scsi_start(). */
void scsi_scan_host(struct Scsi_Host *added) { }

/* Scanning is done later; until then libata only needs a result that is not null. */
struct scsi_device *__scsi_add_device(struct Scsi_Host *added, uint channel, uint id, u64 lun,
				      void *data)
{
	static struct scsi_device later;

	return &later;
}

/* With this result spi_dv_device negotiates nothing faster than asynchronous, narrow transfers with a target:
 * emulated buses have no other speed. */
int scsi_device_get(struct scsi_device *device)
{
	return -ENXIO;
}

/* Devices are never freed. */
void scsi_device_put(struct scsi_device *device) { }

int scsi_is_host_device(const struct device *device)
{
	return host && device == &host->shost_gendev;
}

void scmd_printk(const char *level, const struct scsi_cmnd *cmd, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	lx_print(printk_get_level(level) - '0', "", format, list);
	va_end(list);
}

/* Sets how many commands the unit can have at a time. */
int scsi_change_queue_depth(struct scsi_device *device, int depth)
{
	device->queue_depth = clamp(depth, 1, host->can_queue);
	return device->queue_depth;
}

/* The unit has reported that it has no room for more than so many: those that it refused are given to it again. */
int scsi_track_queue_full(struct scsi_device *device, int depth)
{
	return scsi_change_queue_depth(device, depth);
}

struct scsi_device *__scsi_device_lookup_by_target(struct scsi_target *of, u64 lun)
{
	return disk && of == target && lun == disk->lun ? disk : NULL;
}

void __starget_for_each_device(struct scsi_target *of, void *data,
			       void (*function)(struct scsi_device *, void *))
{
	if (disk && of == target)
		function(disk, data);
}

/* Commands. */

/* The most commands, and bytes of data of each. */
#define COMMANDS 40
#define DATA 65536
/* How often a command is given to a device that has answered "later" or "again", or has not done all of it. */
#define TRIES 10
/* Jiffies after which a device that has not answered is reset. A reset counts as so many tries. */
#define PATIENCE (30 * HZ)
#define LATE (TRIES / 2)

/* Side by side, as Linux has them: drivers compute one from the other (blk_mq_rq_from_pdu, scsi_cmd_priv). */
struct pair {
	struct request request;
	struct scsi_cmnd cmd;
};

static struct command {
	/* In one of the lists below, if the command is in use. */
	struct list_head link;
	struct pair *pair;
	void *data;
	struct scatterlist piece;
	unsigned long due;
	int tries;
	/* The driver has the command. */
	bool given;
	/* The driver has given it back. */
	bool over;
	/* The device must have no other command beside it. */
	bool alone;
	/* The device may have less data than was asked for, which is no error. */
	bool may_be_short;
	bool failed;
} commands[COMMANDS];

/* Commands that wait for the driver, that the driver has, and that it is done with. */
static LIST_HEAD(waiting);
static LIST_HEAD(started);
static LIST_HEAD(ended);
static int in_driver;
/* The numbers of these. Each command gets the lowest free number: a driver may rely on numbers below the count of
 * commands that it takes. */
static DECLARE_BITMAP(tags, COMMANDS);
/* The device gets no command until this time in jiffies: it has asked for a pause more than once. */
static unsigned long pause;
/* A command that was not answered in time, which the process-level thread has to handle. */
static struct command *late;
/* A command has ended, or is late. */
static DECLARE_COMPLETION(came);

static void start_waiting(void);

/* Starts the commands that the driver could not take before, and checks whether the driver still works. */
static void look(struct timer_list *timer)
{
	struct list_head *list = in_driver ? &started : &waiting;
	struct command *first = list_first_entry_or_null(list, struct command, link);

	if (first && !late && time_after(jiffies, first->due)) {
		late = first;
		complete(&came);
		lx_came();
	}
	start_waiting();
}

static DEFINE_TIMER(looker, look);

/* Whether the device has room for this command beside those that it has. */
static bool has_room(const struct command *c)
{
	const struct command *first = list_first_entry_or_null(&started, struct command, link);

	return !first || (in_driver < disk->queue_depth && !c->alone && !first->alone);
}

/* Gives the driver as many commands as it takes, in order. Interrupts are disabled. */
static void start_waiting(void)
{
	struct command *c;
	bool refused = time_before(jiffies, pause) || scsi_host_in_recovery(host);

	while (!refused && (c = list_first_entry_or_null(&waiting, struct command, link)) &&
	       has_room(c)) {
		list_move_tail(&c->link, &started);
		in_driver++;
		c->given = true;
		c->due = jiffies + PATIENCE;
		c->pair->request.tag = find_first_zero_bit(tags, COMMANDS);
		set_bit(c->pair->request.tag, tags);
		refused = host->hostt->queuecommand(host, &c->pair->cmd) != 0;
		if (refused) {
			list_move(&c->link, &waiting);
			in_driver--;
			clear_bit(c->pair->request.tag, tags);
			c->given = false;
		}
	}
	if (refused && !list_empty(&waiting))
		mod_timer(&looker, jiffies + 1);
	else if (!list_empty(&started) && !timer_pending(&looker))
		mod_timer(&looker, jiffies + HZ);
}

static struct command *command_of(struct scsi_cmnd *cmd)
{
	return scsi_cmd_to_rq(cmd)->end_io_data;
}

/* Called by the driver, in any context. */
void scsi_done(struct scsi_cmnd *cmd)
{
	struct command *c = command_of(cmd);
	int was = um_set_signals(0);

	if (!c->given)
		osenv_panic("a command has ended that the driver does not have");
	c->given = false;
	c->over = true;
	if (late == c)
		late = NULL;
	list_move_tail(&c->link, &ended);
	in_driver--;
	clear_bit(scsi_cmd_to_rq(cmd)->tag, tags);
	complete(&came);
	um_set_signals(was);
	lx_came();
}

void *scsi_kmap_atomic_sg(struct scatterlist *piece, int pieces, size_t *offset, size_t *length)
{
	return sg_virt(piece);
}

/* Nothing was mapped: all memory always has an address. */
void scsi_kunmap_atomic_sg(void *address) { }

/* Error handling by the host itself, as by libata, which also detects its disks in this way. */

static LIST_HEAD(unwell);

static void handle_errors(struct work_struct *work)
{
	static bool handles;
	struct Scsi_Host *of;

	while (!handles && (of = list_first_entry_or_null(&unwell, struct Scsi_Host, eh_abort_list))) {
		list_del_init(&of->eh_abort_list);
		handles = true;
		of->transportt->eh_strategy_handler(of);
		handles = false;
		if (list_empty(&of->eh_abort_list))
			of->shost_state = SHOST_RUNNING;
	}
}

static DECLARE_WORK(errors, handle_errors);

/* The handler runs soon, in process context. */
void scsi_schedule_eh(struct Scsi_Host *of)
{
	int was = um_set_signals(0);

	of->shost_state = SHOST_RECOVERY;
	if (list_empty(&of->eh_abort_list))
		list_add_tail(&of->eh_abort_list, &unwell);
	um_set_signals(was);
	schedule_work(&errors);
}

/* A command has failed or is late: the host's error handler takes it. */
void blk_abort_request(struct request *request)
{
	struct scsi_cmnd *cmd = blk_mq_rq_to_pdu(request);

	if (list_empty(&cmd->eh_entry))
		list_add_tail(&cmd->eh_entry, &host->eh_cmd_q);
	scsi_schedule_eh(host);
}

void scsi_eh_finish_cmd(struct scsi_cmnd *cmd, struct list_head *done)
{
	list_move_tail(&cmd->eh_entry, done);
}

/* The commands are judged like all others. The driver does not have a command that has ended since it was late, nor
 * one that it never took. */
void scsi_eh_flush_done_q(struct list_head *done)
{
	struct scsi_cmnd *cmd, *next;

	list_for_each_entry_safe(cmd, next, done, eh_entry) {
		list_del_init(&cmd->eh_entry);
		if (!command_of(cmd)->given)
			continue;
		if (!cmd->result)
			set_host_byte(cmd, DID_TIME_OUT);
		scsi_done(cmd);
	}
}

void scsi_build_sense(struct scsi_cmnd *cmd, int descriptors, u8 key, u8 code, u8 qualifier)
{
	scsi_build_sense_buffer(descriptors, cmd->sense_buffer, key, code, qualifier);
	cmd->result = SAM_STAT_CHECK_CONDITION;
}

/* Only the number of a failed command is printed. */
size_t __scsi_format_command(char *to, size_t size, const unsigned char *bytes, size_t count)
{
	return scnprintf(to, size, "command %#x", bytes[0]);
}

/* What libata needs of Linux in addition. */

/* Runs the function at once: no thread waits for it. */
async_cookie_t async_schedule_node(async_func_t function, void *data, int node)
{
	function(data, 0);
	return 0;
}

/* All functions have run already. */
void async_synchronize_cookie(async_cookie_t cookie) { }

/* A command's data is one piece, and short enough for every driver. */
void blk_queue_max_hw_sectors(struct request_queue *queue, unsigned int most) { }

/* As blk_queue_max_hw_sectors(). */
void blk_queue_update_dma_alignment(struct request_queue *queue, int mask) { }

/* There are no device classes, which only sysfs would show. */
int transport_class_register(struct transport_class *class)
{
	return 0;
}

/* As transport_class_register(). */
int attribute_container_register(struct attribute_container *container)
{
	return 0;
}

/* As transport_class_register(). */
void transport_setup_device(struct device *device) { }

/* As transport_class_register(). */
int transport_add_device(struct device *device)
{
	return 0;
}

/* As transport_class_register(). */
void transport_configure_device(struct device *device) { }

/* As transport_class_register(). */
void device_initialize(struct device *device) { }

/* As transport_class_register(). */
int device_add(struct device *device)
{
	return 0;
}

/* As transport_class_register(). */
int dev_set_name(struct device *device, const char *format, ...)
{
	return 0;
}

/* Nothing is suspended, so there is no order of suspending. */
struct device_link *device_link_add(struct device *user, struct device *of, u32 flags)
{
	static struct device_link link;

	return &link;
}

/* As device_link_add(). */
void device_link_remove(void *user, struct device *of) { }

/* Prepares a command before each try. */
static void prepare(struct command *c)
{
	struct scsi_cmnd *cmd = &c->pair->cmd;

	c->over = false;
	cmd->result = 0;
	cmd->resid_len = 0;
	memset(cmd->sense_buffer, 0, SCSI_SENSE_BUFFERSIZE);
	c->due = jiffies + PATIENCE;
}

/* Gives the driver a command. */
static void give(struct command *c, const u8 *bytes, int size, enum dma_data_direction direction,
		 unsigned int data)
{
	struct scsi_cmnd *cmd = &c->pair->cmd;
	int was;

	memset(cmd->cmnd, 0, sizeof(cmd->cmnd));
	memcpy(cmd->cmnd, bytes, size);
	cmd->cmd_len = size;
	cmd->sc_data_direction = direction;
	cmd->device = disk;
	cmd->flags = disk->simple_tags ? SCMD_TAGGED : 0;
	cmd->sdb.length = data;
	cmd->sdb.table.nents = data ? 1 : 0;
	cmd->sdb.table.sgl = &c->piece;
	/* As sg_init_one(). */
	memset(&c->piece, 0, sizeof(c->piece));
	sg_mark_end(&c->piece);
	sg_set_buf(&c->piece, c->data, data);
	c->tries = 0;
	c->failed = false;
	/* QEMU's 53c895a confuses the end of a slow command without data with that of another command. */
	c->alone = !data;
	c->may_be_short = false;

	was = um_set_signals(0);
	prepare(c);
	list_add_tail(&c->link, &waiting);
	start_waiting();
	um_set_signals(was);
}

/* The result of a command. */
enum outcome { GOOD, BAD, AGAIN };

/* Judges the sense data of a command that the device could not do. */
static enum outcome judge_sense(struct scsi_cmnd *cmd)
{
	const u8 *sense = cmd->sense_buffer;

	/* The device has sent no sense data. */
	if (!sense[0])
		return AGAIN;
	/* Fixed format, or descriptors. */
	switch ((sense[0] & 0x7f) < 0x72 ? sense[2] & 0xf : sense[1] & 0xf) {
	case NO_SENSE:
	case RECOVERED_ERROR:
		/* If the sense data is about an earlier command (deferred), this one was not done. */
		return sense[0] & 1 ? AGAIN : GOOD;
	/* After a reset, or in the middle of something. */
	case NOT_READY:
	case UNIT_ATTENTION:
	case ABORTED_COMMAND:
		return AGAIN;
	case ILLEGAL_REQUEST:
		/* The device has no cache. */
		return cmd->cmnd[0] == SYNCHRONIZE_CACHE ? GOOD : BAD;
	default:
		return BAD;
	}
}

static enum outcome judge(struct command *c)
{
	struct scsi_cmnd *cmd = &c->pair->cmd;
	enum outcome outcome = GOOD;

	switch (host_byte(cmd->result)) {
	case DID_OK:
		break;
	case DID_NO_CONNECT:
	case DID_BAD_TARGET:
		return BAD;
	default:
		return AGAIN;
	}
	switch (get_status_byte(cmd)) {
	case SAM_STAT_CHECK_CONDITION:
		outcome = judge_sense(cmd);
		if (outcome != GOOD)
			return outcome;
		fallthrough;
	case SAM_STAT_GOOD:
		return scsi_get_resid(cmd) && !c->may_be_short ? AGAIN : GOOD;
	case SAM_STAT_BUSY:
	case SAM_STAT_TASK_SET_FULL:
	case SAM_STAT_TASK_ABORTED:
		return AGAIN;
	default:
		return BAD;
	}
}

/* Has the driver reset its device because of a late command: the driver then gives all commands back. If it does
 * not, the next driver resets the device. */
static void recover(void)
{
	int (*reset)(struct scsi_cmnd *) = host->hostt->eh_host_reset_handler, was = um_set_signals(0);
	struct command *c = late;
	struct scsi_cmnd *cmd;

	late = NULL;
	if (c)
		c->due = jiffies + PATIENCE;
	um_set_signals(was);
	/* The late command has ended meanwhile. */
	if (!c)
		return;
	cmd = &c->pair->cmd;
	osenv_log(OSENV_LOG_WARNING, "the disk has not answered for %d s, and is reset", PATIENCE / HZ);
	c->tries += LATE;
	/* The result is ignored: sym53c8xx gives the commands back, and then waits for one of them. */
	if (host->transportt && host->transportt->eh_strategy_handler) {
		blk_abort_request(&c->pair->request);
		lx_run_works();
	} else if (reset)
		reset(cmd);
	if (c->given)
		osenv_panic("the disk does not answer");
	um_set_signals(0);
	/* A command that the driver has refused to take. */
	if (c->tries >= TRIES && !c->over) {
		set_host_byte(cmd, DID_TIME_OUT);
		list_move_tail(&c->link, &ended);
	}
	um_set_signals(was);
}

/* The next command that is over; those to be tried again are not. NULL: none. Starts other commands in its place. */
static struct command *next_ended(void)
{
	struct command *c;
	int was;

	lx_run_works();
	if (late)
		recover();
	was = um_set_signals(0);
	while ((c = list_first_entry_or_null(&ended, struct command, link))) {
		enum outcome outcome = judge(c);

		list_del_init(&c->link);
		if (outcome == AGAIN && ++c->tries < TRIES) {
			prepare(c);
			if (c->tries > 1)
				pause = jiffies + c->tries * HZ / 10;
			list_add(&c->link, &waiting);
			continue;
		}
		c->failed = outcome != GOOD;
		break;
	}
	start_waiting();
	um_set_signals(was);
	return c;
}

/* Allocates a command's memory. Returns false if there is none. */
static bool make(struct command *c)
{
	size_t private = host->hostt->cmd_size;

	INIT_LIST_HEAD(&c->link);
	c->pair = kzalloc(sizeof(*c->pair) + private, GFP_KERNEL);
	c->data = __kmalloc(DATA, GFP_KERNEL);
	if (c->pair)
		c->pair->cmd.sense_buffer = kzalloc(SCSI_SENSE_BUFFERSIZE, GFP_KERNEL);
	if (!c->pair || !c->data || !c->pair->cmd.sense_buffer) {
		kfree(c->pair ? c->pair->cmd.sense_buffer : NULL);
		kfree(c->pair);
		kfree(c->data);
		return false;
	}
	c->pair->request.end_io_data = c;
	INIT_LIST_HEAD(&c->pair->cmd.eh_entry);
	return true;
}

/* Finding the disk. */

/* Does one command, before there are others. Its data goes into the buffer of the first command. */
static int ask(const u8 *bytes, int size, unsigned int data, bool may_be_short)
{
	struct command *c = &commands[0];

	memset(c->data, 0, data);
	give(c, bytes, size, data ? DMA_FROM_DEVICE : DMA_NONE, data);
	c->may_be_short = may_be_short;
	while (next_ended() != c)
		wait_for_completion_timeout(&came, HZ);
	return c->failed ? -EIO : 0;
}

/* Makes the target with this number and its unit 0, for the driver. */
static int make_device(unsigned int id)
{
	size_t more = sizeof(struct spi_transport_attrs);

	target = kzalloc(sizeof(*target) + more, GFP_KERNEL);
	disk = kzalloc(sizeof(*disk), GFP_KERNEL);
	if (!target || !disk)
		return -ENOMEM;
	target->id = id;
	target->dev.parent = &host->shost_gendev;
	disk->host = host;
	disk->id = id;
	disk->sdev_target = target;
	disk->sdev_gendev.parent = &target->dev;
	disk->queue_depth = 1;
	if (host->hostt->target_alloc && host->hostt->target_alloc(target))
		return -ENODEV;
	if (host->hostt->slave_alloc && host->hostt->slave_alloc(disk)) {
		if (host->hostt->target_destroy)
			host->hostt->target_destroy(target);
		return -ENODEV;
	}
	return 0;
}

static void forget_device(void)
{
	if (host->hostt->slave_destroy)
		host->hostt->slave_destroy(disk);
	if (host->hostt->target_destroy)
		host->hostt->target_destroy(target);
	kfree(disk);
	kfree(target);
}

/* Whether unit 0 of a target is a disk. */
static bool is_disk(void)
{
	static const u8 inquiry[6] = { INQUIRY, 0, 0, 0, 36 };
	const u8 *said = commands[0].data;

	if (ask(inquiry, sizeof(inquiry), 36, true) || said[0] != TYPE_DISK)
		return false;
	disk->type = TYPE_DISK;
	disk->scsi_level = said[2] & 7;
	disk->tagged_supported = disk->simple_tags = said[7] >> 1 & 1;
	return true;
}

/* Returns the bytes of a sector, or 0, and stores how many sectors there are. */
static u32 read_capacity(unsigned long *sectors)
{
	static const u8 capacity10[10] = { READ_CAPACITY };
	static const u8 capacity16[16] = { SERVICE_ACTION_IN_16, SAI_READ_CAPACITY_16, [13] = 32 };
	const u8 *said = commands[0].data;

	if (ask(capacity10, sizeof(capacity10), 8, false))
		return 0;
	*sectors = get_unaligned_be32(said) + 1UL;
	if (*sectors <= U32_MAX)
		return get_unaligned_be32(said + 4);
	if (ask(capacity16, sizeof(capacity16), 32, true) ||
	    scsi_get_resid(&commands[0].pair->cmd) > 32 - 12)
		return 0;
	*sectors = get_unaligned_be64(said) + 1;
	return get_unaligned_be32(said + 8);
}

/* The functions that the server calls. */

/* Most sectors of a disk, so that its bytes can be counted in 64 bits. */
#define MOST_SECTORS (1ULL << 54)

/* Starts the driver, and finds the first disk of its bus. Stores how many sectors it has, and whether they can be
 * written. Returns how many commands there can be at a time, or an error. */
int lx_scsi_start(unsigned long *size, int *writable);
int lx_scsi_start(unsigned long *size, int *writable)
{
	static const u8 ready[6] = { TEST_UNIT_READY };
	static const u8 mode[6] = { MODE_SENSE, 8, 0x3f, 0, 4 };
	int error = lx_start(), count;
	u32 bytes;

	if (error)
		return error;
	if (!host || !make(&commands[0]))
		return -ENODEV;
	for (unsigned int id = 0; !disk && id < host->max_id; id++) {
		if (id == host->this_id)
			continue;
		if (!make_device(id)) {
			if (is_disk())
				break;
			forget_device();
		}
		disk = NULL;
		target = NULL;
	}
	if (!disk)
		return -ENODEV;
	if (host->hostt->slave_configure && host->hostt->slave_configure(disk))
		return -ENODEV;
	if (ask(ready, sizeof(ready), 0, false))
		return -EIO;
	bytes = read_capacity(size);
	if (!bytes)
		return -EIO;
	if (bytes != SECTOR_SIZE || *size - 1 >= MOST_SECTORS) {
		osenv_log(OSENV_LOG_ERR, "the disk has %lu sectors of %u bytes", *size, bytes);
		return -EMEDIUMTYPE;
	}
	/* The bit for "write protected", if the device reports it. */
	*writable = ask(mode, sizeof(mode), 4, true) || !(((u8 *)commands[0].data)[2] & 0x80);
	for (count = 1; count < COMMANDS && make(&commands[count]); count++)
		;
	/* The driver needs some memory itself. */
	for (int spare = 2; count < COMMANDS && count > 1 && spare; spare--)
		kfree(commands[--count].data);
	return count;
}

/* The address of a command's data. */
void *lx_scsi_data(int number);
void *lx_scsi_data(int number)
{
	return commands[number].data;
}

/* Starts a command that reads (0) or writes (1). The server asks only for sectors that the disk has. */
void lx_scsi_transfer(int number, int write, unsigned long sector, unsigned int bytes);
void lx_scsi_transfer(int number, int write, unsigned long sector, unsigned int bytes)
{
	unsigned int length = bytes / SECTOR_SIZE;
	u8 cdb[16] = {};
	int size = 10;

	if (sector + length <= U32_MAX) {
		cdb[0] = write ? WRITE_10 : READ_10;
		put_unaligned_be32(sector, cdb + 2);
		put_unaligned_be16(length, cdb + 7);
	} else {
		size = 16;
		cdb[0] = write ? WRITE_16 : READ_16;
		put_unaligned_be64(sector, cdb + 2);
		put_unaligned_be32(length, cdb + 10);
	}
	give(&commands[number], cdb, size, write ? DMA_TO_DEVICE : DMA_FROM_DEVICE, bytes);
}

/* Starts a command that makes the disk write its cache. */
void lx_scsi_flush(int number);
void lx_scsi_flush(int number)
{
	static const u8 cdb[10] = { SYNCHRONIZE_CACHE };

	give(&commands[number], cdb, sizeof(cdb), DMA_NONE, 0);
}

/* The number of a command that is over, and whether it has failed; -1: none is over. */
int lx_scsi_ended(int *failed);
int lx_scsi_ended(int *failed)
{
	struct command *c = next_ended();

	if (!c)
		return -1;
	*failed = c->failed;
	return c - commands;
}
