// SPDX-License-Identifier: GPL-2.0-or-later
/* A driver of the tests. Asks for channels of ISA DMA and has them move memory: its own, which goes well, and others'. */
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
	/* Not its own, none, and the controller's. */
	if (!osenv_isadma_alloc(1) || !osenv_isadma_alloc(-1) || !osenv_isadma_alloc(4))
		return -EIO;
	/* Before it has it. */
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
	/* Memory that is not its own, and what was started stays as it was. */
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
