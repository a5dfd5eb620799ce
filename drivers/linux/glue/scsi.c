// SPDX-License-Identifier: GPL-2.0-or-later
/* Disks on a SCSI bus: requests between the server (../src/disk.rs) and Linux's driver of one host adapter. Linux's block layer and its middle
 * layer of SCSI are not here: commands are made and their outcome is judged below. They are given to the driver in process context, or by the
 * timer. */
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

/* The adapter, the target and its unit 0. There is one of each. */
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

/* Adapters stay. */
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

/* Later, by lx_scsi_start(). */
void scsi_scan_host(struct Scsi_Host *added) { }

/* As that: libata wants to have something until then. */
struct scsi_device *__scsi_add_device(struct Scsi_Host *added, uint channel, uint id, u64 lun,
				      void *data)
{
	static struct scsi_device later;

	return &later;
}

/* By this nothing faster is agreed on with a target than asynchronous and narrow transfers (spi_dv_device): emulated buses have no other speed. */
int scsi_device_get(struct scsi_device *device)
{
	return -ENXIO;
}

/* Devices stay. */
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

/* How many commands the unit can have. */
int scsi_change_queue_depth(struct scsi_device *device, int depth)
{
	device->queue_depth = clamp(depth, 1, host->can_queue);
	return device->queue_depth;
}

/* The unit has said that it has no room for more than so many: those that it refused are given to it again. */
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

/* Most that there are, and bytes of data of each. */
#define COMMANDS 40
#define DATA 65536
/* How often one is given to the device that has said "later" or "again" to it, or has not done all of it. */
#define TRIES 10
/* Jiffies after which the device is reset that has not answered. It counts as so many tries. */
#define PATIENCE (30 * HZ)
#define LATE (TRIES / 2)

/* As Linux has it: the driver finds one by the other (blk_mq_rq_from_pdu, scsi_cmd_priv). */
struct pair {
	struct request request;
	struct scsi_cmnd cmd;
};

static struct command {
	/* In one of the lists below, if anybody wants it. */
	struct list_head link;
	struct pair *pair;
	void *data;
	struct scatterlist piece;
	unsigned long due;
	int tries;
	/* The driver has it. */
	bool given;
	/* The driver has given it back. */
	bool over;
	/* The device has no other command beside it. */
	bool alone;
	/* The device has less to read than it was asked for, and that is no error. */
	bool may_be_short;
	bool failed;
} commands[COMMANDS];

/* Those that no driver has, those that the driver has, and those that it is done with. */
static LIST_HEAD(waiting);
static LIST_HEAD(started);
static LIST_HEAD(ended);
static int in_driver;
/* Numbers that these have, the lowest ones that are free: a driver can count on there being as many as it takes commands. */
static DECLARE_BITMAP(tags, COMMANDS);
/* Jiffies until which the device is left alone: it has asked for it more than once. */
static unsigned long pause;
/* One that was not answered in time, which the process-level thread is to take care of. */
static struct command *late;
/* Something has ended, or is late. */
static DECLARE_COMPLETION(came);

static void start_waiting(void);

/* Starts what the driver could not take before, and looks whether it still works. */
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

/* Whether the device has room for this one beside those that it has. */
static bool has_room(const struct command *c)
{
	const struct command *first = list_first_entry_or_null(&started, struct command, link);

	return !first || (in_driver < disk->queue_depth && !c->alone && !first->alone);
}

/* Gives the driver what it takes, in order. Interrupts are disabled. */
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

/* From the driver, in any context. */
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

/* Nothing was mapped: all memory has an address always. */
void scsi_kunmap_atomic_sg(void *address) { }

/* Errors of a host that takes care of them itself, as libata does, which looks for its disks so too. */

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

/* In process context, soon. */
void scsi_schedule_eh(struct Scsi_Host *of)
{
	int was = um_set_signals(0);

	of->shost_state = SHOST_RECOVERY;
	if (list_empty(&of->eh_abort_list))
		list_add_tail(&of->eh_abort_list, &unwell);
	um_set_signals(was);
	schedule_work(&errors);
}

/* One has failed, or is late: it is the handler's. */
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

/* They are judged as all others. One that has ended since it was late, or that the driver never took, is not the driver's. */
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

/* Of a command that has failed only its numbers are told. */
size_t __scsi_format_command(char *to, size_t size, const unsigned char *bytes, size_t count)
{
	return scnprintf(to, size, "command %#x", bytes[0]);
}

/* What libata asks of Linux beside it. */

/* Now: nobody waits for it. */
async_cookie_t async_schedule_node(async_func_t function, void *data, int node)
{
	function(data, 0);
	return 0;
}

/* All is done that was wanted. */
void async_synchronize_cookie(async_cookie_t cookie) { }

/* Commands have one piece, and are short enough for all. */
void blk_queue_max_hw_sectors(struct request_queue *queue, unsigned int most) { }

/* As that. */
void blk_queue_update_dma_alignment(struct request_queue *queue, int mask) { }

/* There are no classes of devices, as sysfs shows them. */
int transport_class_register(struct transport_class *class)
{
	return 0;
}

/* As that. */
int attribute_container_register(struct attribute_container *container)
{
	return 0;
}

/* As that. */
void transport_setup_device(struct device *device) { }

/* As that. */
int transport_add_device(struct device *device)
{
	return 0;
}

/* As that. */
void transport_configure_device(struct device *device) { }

/* As that. */
void device_initialize(struct device *device) { }

/* As that. */
int device_add(struct device *device)
{
	return 0;
}

/* As that. */
int dev_set_name(struct device *device, const char *format, ...)
{
	return 0;
}

/* Nothing is suspended, and so nothing in an order. */
struct device_link *device_link_add(struct device *user, struct device *of, u32 flags)
{
	static struct device_link link;

	return &link;
}

/* As that. */
void device_link_remove(void *user, struct device *of) { }

/* Before each try. */
static void prepare(struct command *c)
{
	struct scsi_cmnd *cmd = &c->pair->cmd;

	c->over = false;
	cmd->result = 0;
	cmd->resid_len = 0;
	memset(cmd->sense_buffer, 0, SCSI_SENSE_BUFFERSIZE);
	c->due = jiffies + PATIENCE;
}

/* Has the driver do a command. */
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
	/* QEMU's 53c895a takes the end of a command that has no data, and takes its time, for that of another one. */
	c->alone = !data;
	c->may_be_short = false;

	was = um_set_signals(0);
	prepare(c);
	list_add_tail(&c->link, &waiting);
	start_waiting();
	um_set_signals(was);
}

/* What has become of a command. */
enum outcome { GOOD, BAD, AGAIN };

/* What the device says of a command that it could not do. */
static enum outcome judge_sense(struct scsi_cmnd *cmd)
{
	const u8 *sense = cmd->sense_buffer;

	/* It was not said. */
	if (!sense[0])
		return AGAIN;
	/* Fixed format, or descriptors. */
	switch ((sense[0] & 0x7f) < 0x72 ? sense[2] & 0xf : sense[1] & 0xf) {
	case NO_SENSE:
	case RECOVERED_ERROR:
		/* If it is said of an earlier command (deferred), this one was not done. */
		return sense[0] & 1 ? AGAIN : GOOD;
	/* After a reset, or in the middle of something. */
	case NOT_READY:
	case UNIT_ATTENTION:
	case ABORTED_COMMAND:
		return AGAIN;
	case ILLEGAL_REQUEST:
		/* It has no cache. */
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

/* Has the driver reset its device because of one that is late: it gives all back. The next driver resets the device of one that does not. */
static void recover(void)
{
	int (*reset)(struct scsi_cmnd *) = host->hostt->eh_host_reset_handler, was = um_set_signals(0);
	struct command *c = late;
	struct scsi_cmnd *cmd;

	late = NULL;
	if (c)
		c->due = jiffies + PATIENCE;
	um_set_signals(was);
	/* It has ended meanwhile. */
	if (!c)
		return;
	cmd = &c->pair->cmd;
	osenv_log(OSENV_LOG_WARNING, "the disk has not answered for %d s, and is reset", PATIENCE / HZ);
	c->tries += LATE;
	/* What it says is not asked: sym53c8xx gives back, and then waits for what it has given back. */
	if (host->transportt && host->transportt->eh_strategy_handler) {
		blk_abort_request(&c->pair->request);
		lx_run_works();
	} else if (reset)
		reset(cmd);
	if (c->given)
		osenv_panic("the disk does not answer");
	um_set_signals(0);
	/* One that the driver did not want to have. */
	if (c->tries >= TRIES && !c->over) {
		set_host_byte(cmd, DID_TIME_OUT);
		list_move_tail(&c->link, &ended);
	}
	um_set_signals(was);
}

/* A command that is over: those that are to be done again are not. NULL: none. Starts others in its place. */
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

/* Memory for a command: false if there is none. */
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

/* Does the command whose bytes these are, before there are others. Its data goes to the first one's. */
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

/* The target with this number and its unit 0, for the driver. */
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

/* Bytes of a sector, or 0, and how many sectors there are. */
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

/* The server's. */

/* Most sectors of a disk: bytes can be counted. */
#define MOST_SECTORS (1ULL << 54)

/* Starts the driver, and finds the first disk of its bus: how many sectors it has, whether they can be written, and how many commands there
 * can be at a time; or an error. */
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
	/* The bit for "write protected", if it has that. */
	*writable = ask(mode, sizeof(mode), 4, true) || !(((u8 *)commands[0].data)[2] & 0x80);
	for (count = 1; count < COMMANDS && make(&commands[count]); count++)
		;
	/* Some memory is the driver's. */
	for (int spare = 2; count < COMMANDS && count > 1 && spare; spare--)
		kfree(commands[--count].data);
	return count;
}

/* Where the data of a command stands. */
void *lx_scsi_data(int number);
void *lx_scsi_data(int number)
{
	return commands[number].data;
}

/* Has a command read (0) or written (1). What the server asks for the disk has. */
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

/* Has the disk write what is in its cache. */
void lx_scsi_flush(int number);
void lx_scsi_flush(int number)
{
	static const u8 cdb[10] = { SYNCHRONIZE_CACHE };

	give(&commands[number], cdb, sizeof(cdb), DMA_NONE, 0);
}

/* The number of a command that is over, and whether it has failed; -1: none. */
int lx_scsi_ended(int *failed);
int lx_scsi_ended(int *failed)
{
	struct command *c = next_ended();

	if (!c)
		return -1;
	*failed = c->failed;
	return c - commands;
}
