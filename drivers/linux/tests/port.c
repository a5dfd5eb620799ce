// SPDX-License-Identifier: GPL-2.0-or-later
/* A driver of the tests. Accesses ports of the serial line, after its own ports, and ports that it has given back:
 * it is ended, or reads ones and goes on. */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

static int port_probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	void __iomem *own = pci_iomap(dev, 1, 0);

	/* The range of the last access is checked first. */
	if (!own || ioread16(own) == 0xffff)
		return -EIO;
	outw(0, 0x3f8);
	if (inb(0x3f9) != 0xff || inw(0x3fa) != 0xffff || inl(0x3fc) != ~0U ||
	    ioread8((void __iomem *)0x3f9) != 0xff)
		return -EIO;
	for (int i = 0; i < 1000; i++)
		iowrite8(0, (void __iomem *)0x3f9);
	if (!request_region(0x220, 16, "port"))
		return -EBUSY;
	outb(0, 0x228);
	release_region(0x220, 16);
	outb(0, 0x228);
	pr_err("it goes on\n");
	return 0;
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(PCI_VENDOR_ID_INTEL, 0x1229) }, {} };

static struct pci_driver wild = {
	.name = "port",
	.id_table = ids,
	.probe = port_probe,
};

module_pci_driver(wild);
