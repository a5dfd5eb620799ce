// SPDX-License-Identifier: GPL-2.0-or-later
/* A driver of the tests. Its disk has no device, and gives wrong answers. */
#include <asm/unaligned.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <scsi/scsi.h>
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_host.h>

/* The error of the whole disk: 1, its capacity is cut short; 2, its sectors are large; 3, it has no sectors; 4, it
 * does not answer. */
static int mode;
module_param(mode, int, 0);

static struct scsi_cmnd *held;
static int attentions = 3, busy = 3;

static void sense(struct scsi_cmnd *cmd, int key)
{
	cmd->sense_buffer[0] = 0x70;
	cmd->sense_buffer[2] = key;
	cmd->result = SAM_STAT_CHECK_CONDITION;
}

static void read(struct scsi_cmnd *cmd)
{
	switch (get_unaligned_be32(cmd->cmnd + 2)) {
	case 101:
		return sense(cmd, MEDIUM_ERROR);
	case 102:
		/* Without sense data. */
		cmd->result = SAM_STAT_CHECK_CONDITION;
		return;
	case 103:
		return scsi_set_resid(cmd, 100);
	case 104:
		return set_host_byte(cmd, DID_NO_CONNECT);
	case 105:
		cmd->result = SAM_STAT_BUSY;
		return;
	case 106:
		held = cmd;
		return;
	case 107:
		return sense(cmd, RECOVERED_ERROR);
	}
}

static int disk_queuecommand(struct Scsi_Host *host, struct scsi_cmnd *cmd)
{
	u8 *data = sg_virt(scsi_sglist(cmd));

	switch (cmd->cmnd[0]) {
	case INQUIRY:
		data[7] = 2;
		scsi_set_resid(cmd, 4);
		break;
	case TEST_UNIT_READY:
		if (attentions-- > 0)
			sense(cmd, UNIT_ATTENTION);
		break;
	case READ_CAPACITY:
		put_unaligned_be32(mode == 3 ? U32_MAX : 4095, data);
		put_unaligned_be32(mode == 2 ? 4096 : 512, data + 4);
		scsi_set_resid(cmd, mode == 1 ? 4 : 0);
		if (mode == 4)
			held = cmd;
		break;
	case READ_10:
		memset(data, 0x5a, scsi_bufflen(cmd));
		read(cmd);
		break;
	case MODE_SENSE:
		if (busy-- > 0)
			return SCSI_MLQUEUE_HOST_BUSY;
		fallthrough;
	/* Nor has it a cache. */
	default:
		sense(cmd, ILLEGAL_REQUEST);
	}
	if (held != cmd)
		scsi_done(cmd);
	return 0;
}

static int disk_reset(struct scsi_cmnd *cmd)
{
	set_host_byte(held, DID_RESET);
	scsi_done(held);
	held = NULL;
	return SUCCESS;
}

static struct scsi_host_template template = {
	.name = "disk",
	.queuecommand = disk_queuecommand,
	.eh_host_reset_handler = disk_reset,
	.this_id = 7,
	.can_queue = 8,
};

static int disk_probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	struct Scsi_Host *host = scsi_host_alloc(&template, 0);

	return host ? scsi_add_host(host, &dev->dev) : -ENOMEM;
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(PCI_VENDOR_ID_LSI_LOGIC, 0x0012) }, {} };

static struct pci_driver wild = {
	.name = "disk",
	.id_table = ids,
	.probe = disk_probe,
};

module_pci_driver(wild);
