// SPDX-License-Identifier: GPL-2.0-or-later
/* A driver of the tests. Touches a port of the serial line. */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

static int port_probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	outw(0, 0x3f8);
	return 0;
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(PCI_VENDOR_ID_INTEL, 0x1229) }, {} };

static struct pci_driver wild = {
	.name = "port",
	.id_table = ids,
	.probe = port_probe,
};

module_pci_driver(wild);
