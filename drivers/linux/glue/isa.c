// SPDX-License-Identifier: GPL-2.0-or-later
/* Devices that cannot be enumerated: a driver tries ports and lines. It was granted those that it may try. */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/ioport.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/slab.h>

#include "lx.h"

/* Ports. Those that the driver has are in a list without order. */

struct resource ioport_resource = { .end = LX_PORTS - 1, .flags = IORESOURCE_IO };

struct resource *__request_region(struct resource *parent, resource_size_t start,
				  resource_size_t size, const char *name, int flags)
{
	struct resource *r, wanted = { .start = start, .end = start + size - 1, .name = name };

	if (parent != &ioport_resource)
		return NULL;
	for (r = parent->child; r; r = r->sibling)
		if (resource_overlaps(r, &wanted))
			return NULL;
	/* Not osenv_io_alloc(): a driver that looks for its device asks for ports that are not its own, and no message
	 * is to be written for them. */
	if (!osenv_io_avail(start, size))
		return NULL;
	r = kmalloc(sizeof(*r), GFP_KERNEL);
	if (r) {
		*r = wanted;
		r->sibling = parent->child;
		parent->child = r;
	}
	return r;
}

void __release_region(struct resource *parent, resource_size_t start, resource_size_t size)
{
	for (struct resource **r = &parent->child; *r; r = &(*r)->sibling)
		if ((*r)->start == start && resource_size(*r) == size) {
			struct resource *gone = *r;

			*r = gone->sibling;
			kfree(gone);
			osenv_io_free(start, size);
			return;
		}
}

/* Lines: all lines that the driver may have are allocated until it is known which of them its device raises
 * (kernel/irq/autoprobe.c). */

static unsigned long rang;

static int rings(void *irq)
{
	set_bit((unsigned long)irq, &rang);
	return 1;
}

/* Gives these lines back. */
static void stop_trying(unsigned long lines)
{
	unsigned int irq;

	for_each_set_bit(irq, &lines, LX_LINES)
		osenv_irq_free(irq, rings, (void *)(unsigned long)irq);
}

/* Returns the lines that are quiet. The mask has all of them, not only the lower ones as Linux's. */
unsigned long probe_irq_on(void)
{
	unsigned long lines = 0, loud;

	for (unsigned long irq = 1; irq < LX_LINES; irq++)
		if (!osenv_irq_alloc(irq, rings, (void *)irq, OSENV_IRQ_PROBE))
			lines |= BIT(irq);
	/* Pending interrupts ring now. */
	msleep(20);
	loud = xchg(&rang, 0) & lines;
	stop_trying(loud);
	return lines & ~loud;
}

int probe_irq_off(unsigned long lines)
{
	unsigned long found = xchg(&rang, 0) & lines;

	stop_trying(lines);
	if (!found)
		return 0;
	return found & (found - 1) ? -(int)__ffs(found) : (int)__ffs(found);
}

/* Platform devices: a name and a number, which drivers/net/Space.c or a driver makes for a device that it will look
 * for. */

#define MOST_DEVICES 8

static struct platform_device *devices[MOST_DEVICES];

struct platform_device *platform_device_register_full(const struct platform_device_info *info)
{
	for (int i = 0; i < MOST_DEVICES; i++)
		if (!devices[i]) {
			devices[i] = kzalloc(sizeof(*devices[i]), GFP_KERNEL);
			if (!devices[i])
				break;
			devices[i]->name = info->name;
			devices[i]->id = info->id;
			return devices[i];
		}
	return ERR_PTR(-ENOMEM);
}

void platform_device_unregister(struct platform_device *device)
{
	for (int i = 0; i < MOST_DEVICES; i++)
		if (devices[i] == device) {
			devices[i] = NULL;
			kfree(device);
		}
}

/* The driver gets the first device that is present; no other is looked for. */
int __platform_driver_probe(struct platform_driver *driver, int (*probe)(struct platform_device *),
			    struct module *module)
{
	int error = -ENODEV;

	for (int i = 0; i < MOST_DEVICES && error; i++)
		if (devices[i] && !strcmp(devices[i]->name, driver->driver.name))
			error = probe(devices[i]);
	return error;
}

/* No device has known resources. */
struct resource *platform_get_resource(struct platform_device *device, unsigned int type,
				       unsigned int index)
{
	return NULL;
}
