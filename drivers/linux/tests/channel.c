// SPDX-License-Identifier: GPL-2.0-or-later
/* A driver of the tests. Allocates channels of ISA DMA and starts transfers: to its own memory, which must succeed,
 * and to other memory. */
#include <linux/errno.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/printk.h>

#include <osenv.h>

#define OWN 5
#define SIZE 0x10000

static int __init channel_init(void)
{
	char *block = osenv_mem_alloc(SIZE, OSENV_AUTO_SIZE | OSENV_ISADMA_MEM, 1);
	unsigned long physical = osenv_mem_get_phys((unsigned long)block);

	if (!block || physical % SIZE || physical + SIZE > 0x1000000)
		return -ENOMEM;
	/* Another driver's channel, no channel, and the controller's own. */
	if (!osenv_isadma_alloc(1) || !osenv_isadma_alloc(-1) || !osenv_isadma_alloc(4))
		return -EIO;
	/* Before the channel is allocated. */
	if (!osenv_isadma_start(OWN, physical, SIZE, 0) || osenv_isadma_left(OWN))
		return -EIO;
	if (osenv_isadma_alloc(OWN) || !osenv_isadma_alloc(OWN))
		return -EIO;
	if (osenv_isadma_start(OWN, physical, SIZE, OSENV_ISADMA_AGAIN) ||
	    osenv_isadma_left(OWN) != SIZE)
		return -EIO;
	if (osenv_isadma_start(OWN, physical + 0x100, 0x200, OSENV_ISADMA_TO_MEMORY) ||
	    osenv_isadma_left(OWN) != 0x200)
		return -EIO;
	/* Memory of others is refused, and the started transfer is not changed. */
	if (!osenv_isadma_start(OWN, 0x1f0000, 0x1000, OSENV_ISADMA_TO_MEMORY) ||
	    !osenv_isadma_start(OWN, ~0UL, 2, 0) || osenv_isadma_left(OWN) != 0x200)
		return -EIO;
	osenv_isadma_stop(OWN);
	if (osenv_isadma_left(OWN))
		return -EIO;
	osenv_isadma_free(OWN);
	if (!osenv_isadma_start(OWN, physical, SIZE, 0) || osenv_isadma_alloc(OWN))
		return -EIO;
	pr_err("all was as it should be\n");
	return -ENODEV;
}

module_init(channel_init);
