// SPDX-License-Identifier: GPL-2.0-or-later
/* A driver of the tests. Sleeps where sleeping is not allowed. */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

static int sleep_probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	local_bh_disable();
	msleep(1);
	local_bh_enable();
	return 0;
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(PCI_VENDOR_ID_INTEL, 0x1229) }, {} };

static struct pci_driver wild = {
	.name = "sleep",
	.id_table = ids,
	.probe = sleep_probe,
};

module_pci_driver(wild);
