// SPDX-License-Identifier: GPL-2.0-or-later
/* A driver of the tests. Calls a function that the glue does not have. */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

static int call_probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	return pci_prepare_to_sleep(dev);
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(PCI_VENDOR_ID_INTEL, 0x1229) }, {} };

static struct pci_driver wild = {
	.name = "call",
	.id_table = ids,
	.probe = call_probe,
};

module_pci_driver(wild);
