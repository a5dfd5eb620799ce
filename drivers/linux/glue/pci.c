// SPDX-License-Identifier: GPL-2.0-or-later
/* PCI functions, memory that devices reach, registers and ports. */
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/dmapool.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "lx.h"

/* Configuration. */

static int config_read(struct pci_dev *dev, int where, int size, u32 *value)
{
	unsigned int word = ~0U;
	int failed = osenv_pci_config_read(dev->bus->number, PCI_SLOT(dev->devfn),
					   PCI_FUNC(dev->devfn), where & ~3, &word);

	word >>= (where & 3) * 8;
	*value = size == 4 ? word : word & ((1U << size * 8) - 1);
	return failed ? PCIBIOS_DEVICE_NOT_FOUND : PCIBIOS_SUCCESSFUL;
}

static int config_write(struct pci_dev *dev, int where, int size, u32 value)
{
	u32 word, mask = size == 4 ? ~0U : (1U << size * 8) - 1, shift = (where & 3) * 8;

	config_read(dev, where & ~3, 4, &word);
	word = (word & ~(mask << shift)) | (value & mask) << shift;
	/* A write that is refused concerns bits that the device server controls and has set as needed. */
	osenv_pci_config_write(dev->bus->number, PCI_SLOT(dev->devfn), PCI_FUNC(dev->devfn),
			       where & ~3, word);
	return PCIBIOS_SUCCESSFUL;
}

int pci_read_config_byte(const struct pci_dev *dev, int where, u8 *value)
{
	u32 word;
	int result = config_read((struct pci_dev *)dev, where, 1, &word);

	*value = word;
	return result;
}

int pci_read_config_word(const struct pci_dev *dev, int where, u16 *value)
{
	u32 word;
	int result = config_read((struct pci_dev *)dev, where, 2, &word);

	*value = word;
	return result;
}

int pci_read_config_dword(const struct pci_dev *dev, int where, u32 *value)
{
	return config_read((struct pci_dev *)dev, where, 4, value);
}

int pci_write_config_byte(const struct pci_dev *dev, int where, u8 value)
{
	return config_write((struct pci_dev *)dev, where, 1, value);
}

int pci_write_config_word(const struct pci_dev *dev, int where, u16 value)
{
	return config_write((struct pci_dev *)dev, where, 2, value);
}

int pci_write_config_dword(const struct pci_dev *dev, int where, u32 value)
{
	return config_write((struct pci_dev *)dev, where, 4, value);
}

/* The functions that this driver has. There is one. */

static struct pci_bus bus;
static struct pci_dev *own;

/* Fills in the range of a base address. The kit answers the query for its size. */
static void read_base(struct pci_dev *dev, int index)
{
	int where = PCI_BASE_ADDRESS_0 + 4 * index;
	struct resource *r = &dev->resource[index];
	u32 base, size, mask;

	pci_read_config_dword(dev, where, &base);
	pci_write_config_dword(dev, where, ~0U);
	pci_read_config_dword(dev, where, &size);
	pci_write_config_dword(dev, where, base);
	if (!size || size == ~0U)
		return;
	mask = base & PCI_BASE_ADDRESS_SPACE_IO ? PCI_BASE_ADDRESS_IO_MASK : PCI_BASE_ADDRESS_MEM_MASK;
	r->start = base & mask;
	r->end = r->start + (~(size & mask) & (mask == (u32)PCI_BASE_ADDRESS_IO_MASK ? 0xffff : ~0U));
	r->flags = base & PCI_BASE_ADDRESS_SPACE_IO ? IORESOURCE_IO : IORESOURCE_MEM;
	r->name = dev_name(&dev->dev);
}

static struct pci_dev *read_function(int devfn)
{
	struct pci_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	static char name[16];
	u32 word;
	u8 byte;

	if (!dev)
		return NULL;
	dev->bus = &bus;
	dev->devfn = devfn;
	snprintf(name, sizeof(name), "0000:00:%02x.%d", PCI_SLOT(devfn), PCI_FUNC(devfn));
	dev->dev.init_name = name;
	pci_read_config_dword(dev, PCI_VENDOR_ID, &word);
	dev->vendor = word;
	dev->device = word >> 16;
	pci_read_config_dword(dev, PCI_CLASS_REVISION, &word);
	dev->class = word >> 8;
	dev->revision = word;
	pci_read_config_dword(dev, PCI_SUBSYSTEM_VENDOR_ID, &word);
	dev->subsystem_vendor = word;
	dev->subsystem_device = word >> 16;
	/* The kit knows the function's line; the number only names it. */
	pci_read_config_byte(dev, PCI_INTERRUPT_LINE, &byte);
	dev->irq = byte >= 3 && byte < 16 ? byte : 11;
	INIT_LIST_HEAD(&dev->dev.devres_head);
	for (int i = 0; i < PCI_STD_NUM_BARS; i++)
		read_base(dev, i);
	/* A disk controller at the legacy ports, which its base addresses do not show. The second channel is not used. */
	if (dev->class >> 8 == PCI_CLASS_STORAGE_IDE && !(dev->class & 1)) {
		dev->resource[0] = (struct resource)DEFINE_RES_IO(0x1f0, 8);
		dev->resource[1] = (struct resource)DEFINE_RES_IO(0x3f6, 1);
	}
	dev->dma_mask = DMA_BIT_MASK(32);
	dev->dev.dma_mask = &dev->dma_mask;
	dev->dev.coherent_dma_mask = DMA_BIT_MASK(32);
	dev->error_state = pci_channel_io_normal;
	dev->current_state = PCI_D0;
	return dev;
}

/* How to reset a device that may still know addresses of a driver that has died. Drivers reset it too, but only
 * after they have allocated memory, and some only after they have become bus master. Each row is an access to a
 * register of a base address. */
static const struct reset {
	u16 vendor, device, where;
	u8 base, size, write;
	u32 value;
} resets[] = {
	{ PCI_VENDOR_ID_INTEL, 0x1209, 8, 0, 4, 1, 0 },		/* PORT: reset */
	{ PCI_VENDOR_ID_INTEL, 0x1229, 8, 0, 4, 1, 0 },
	{ PCI_VENDOR_ID_INTEL, 0x100e, 0xd8, 0, 4, 1, ~0U },	/* no interrupts, */
	{ PCI_VENDOR_ID_INTEL, 0x100e, 0x100, 0, 4, 1, 0 },	/* nothing comes */
	{ PCI_VENDOR_ID_INTEL, 0x100e, 0x400, 0, 4, 1, 0 },	/* or goes, in QEMU's, */
	{ PCI_VENDOR_ID_INTEL, 0x100e, 0, 0, 4, 1, 1 << 26 },	/* whose CTRL: RST does nothing */
	{ PCI_VENDOR_ID_DEC, 0x0019, 0, 0, 4, 1, 1 },		/* CSR0: SWR */
	{ PCI_VENDOR_ID_REALTEK, 0x8139, 0x37, 0, 1, 1, 0x10 },	/* command: RST */
	{ PCI_VENDOR_ID_AMD, 0x2000, 0x18, 0, 4, 0, 0 },	/* reading S_RESET resets, with 32 bits */
	{ PCI_VENDOR_ID_AMD, 0x2000, 0x14, 0, 2, 0, 0 },	/* and with 16 */
	{ PCI_VENDOR_ID_LSI_LOGIC, 0x0012, 0x14, 0, 1, 1, 0x40 },	/* ISTAT: SRST, */
	{ PCI_VENDOR_ID_LSI_LOGIC, 0x0012, 0x14, 0, 1, 1, 0 },	/* which stays */
	{ PCI_VENDOR_ID_AMD, 0x2020, 0x40, 0, 1, 1, 0 },	/* DMA: idle */
	{ PCI_VENDOR_ID_AMD, 0x2020, 0x20, 0, 1, 1, 0x40 },	/* no interrupt for a reset of the bus */
	{ PCI_VENDOR_ID_AMD, 0x2020, 0x0c, 0, 1, 1, 3 },	/* command: reset the bus, which ends what the disk does, */
	{ PCI_VENDOR_ID_AMD, 0x2020, 0x0c, 0, 1, 1, 2 },	/* and reset the chip */
	{ PCI_VENDOR_ID_AMD, 0x2020, 0x54, 0, 4, 0, 0 },	/* status of DMA: reading clears it */
	{ PCI_VENDOR_ID_INTEL, 0x7010, 0, 4, 1, 1, 0 },		/* DMA of the first channel: stop, */
	{ PCI_VENDOR_ID_INTEL, 0x7010, 8, 4, 1, 1, 0 },		/* and of the second */
};

/* Nanoseconds that a reset takes. */
#define RESET_TIME 100000

static unsigned int config_word(int devfn, int where)
{
	unsigned int word = ~0U;

	osenv_pci_config_read(0, PCI_SLOT(devfn), PCI_FUNC(devfn), where, &word);
	return word;
}

/* Resets the device. Returns whether its registers could be reached. */
static bool reset(int devfn, const struct reset *r)
{
	unsigned int base = config_word(devfn, PCI_BASE_ADDRESS_0 + 4 * r->base);
	void *address;

	if (base & PCI_BASE_ADDRESS_SPACE_IO) {
		base &= PCI_BASE_ADDRESS_IO_MASK;
		address = osenv_io_alloc(base + r->where, r->size) ? NULL : (void *)(unsigned long)base;
	} else {
		base &= PCI_BASE_ADDRESS_MEM_MASK;
		if (osenv_mem_map_phys(base, r->where + r->size, &address, 0))
			address = NULL;
	}
	if (!address)
		return false;
	address += r->where;
	if (r->write)
		r->size == 1 ? iowrite8(r->value, address) : iowrite32(r->value, address);
	else
		r->size == 2 ? ioread16(address) : ioread32(address);
	osenv_timer_spin(RESET_TIME);
	return true;
}

/* Resets the device of this driver, if it is in the table, and tells the device server: only then is an earlier
 * driver's memory free. */
static void reset_device(int devfn, unsigned int id)
{
	bool known = false, done = true;

	for (int i = 0; i < ARRAY_SIZE(resets); i++)
		if (id == (resets[i].vendor | (unsigned int)resets[i].device << 16)) {
			done = reset(devfn, &resets[i]) && done;
			known = true;
		}
	if (known && done)
		osenv_pci_config_write(0, PCI_SLOT(devfn), PCI_FUNC(devfn), PCI_COMMAND,
				       config_word(devfn, PCI_COMMAND) | PCI_COMMAND_MASTER);
}

/* Where the function of this driver is. */
static int own_devfn;

/* Whether the driver has a function. Drivers of ISA devices reset them before they have lines; such devices know no
 * addresses. */
static bool find(void)
{
	if (osenv_pci_config_init())
		return false;
	for (own_devfn = 0; own_devfn < 256; own_devfn++) {
		unsigned int id = config_word(own_devfn, PCI_VENDOR_ID);

		if (id != ~0U) {
			reset_device(own_devfn, id);
			return true;
		}
	}
	return false;
}

int lx_start(void)
{
	bool found = find();

	lx_begin();
	if (found) {
		own = read_function(own_devfn);
		if (!own)
			return -ENOMEM;
	}
	return lx_initcalls();
}

/* Calls the driver's probe function for the driver's PCI function, if the list has it. */
int __pci_register_driver(struct pci_driver *driver, struct module *owner, const char *name)
{
	for (const struct pci_device_id *id = driver->id_table; own && id->vendor; id++)
		if ((id->vendor == (u32)PCI_ANY_ID || id->vendor == own->vendor) &&
		    (id->device == (u32)PCI_ANY_ID || id->device == own->device) &&
		    (id->subvendor == (u32)PCI_ANY_ID || id->subvendor == own->subsystem_vendor) &&
		    (id->subdevice == (u32)PCI_ANY_ID || id->subdevice == own->subsystem_device) &&
		    !((id->class ^ own->class) & id->class_mask)) {
			own->driver = driver;
			return driver->probe(own, id);
		}
	return -ENODEV;
}

/* There is no other function on the bus. */
struct pci_dev *pci_get_device(unsigned int vendor, unsigned int device, struct pci_dev *from)
{
	return NULL;
}

/* As pci_get_device(). */
struct pci_dev *pci_get_slot(struct pci_bus *bus, unsigned int devfn)
{
	return NULL;
}

/* Functions are never freed: the driver's own one stays. */
void pci_dev_put(struct pci_dev *dev) { }

/* Addresses of the bus are those of the processor. */
void pcibios_resource_to_bus(struct pci_bus *bus, struct pci_bus_region *region,
			     struct resource *r)
{
	region->start = r->start;
	region->end = r->end;
}

/* No other function is looked at: drivers ask for chipsets with faults, and QEMU has none. */
int pci_dev_present(const struct pci_device_id *ids)
{
	return 0;
}

/* Firmware has assigned the addresses, and the device server lets the function respond to them. */
int pci_enable_device(struct pci_dev *dev)
{
	return 0;
}

/* As pci_enable_device(). Nothing is undone automatically, since a driver is never unloaded. */
int pcim_enable_device(struct pci_dev *dev)
{
	return 0;
}

/* Called when a driver gives up: its program ends, and the device server takes the function back. */
void pci_disable_device(struct pci_dev *dev) { }

/* The device has been reset already. */
void pci_set_master(struct pci_dev *dev)
{
	u16 command;

	pci_read_config_word(dev, PCI_COMMAND, &command);
	pci_write_config_word(dev, PCI_COMMAND, command | PCI_COMMAND_MASTER);
}

/* Nothing is ever suspended or resumed. */
int pci_save_state(struct pci_dev *dev)
{
	return 0;
}

/* Memory write and invalidate stays off: it makes no emulated device faster. */
int pci_set_mwi(struct pci_dev *dev)
{
	return 0;
}

/* Memory write and invalidate was never on. */
void pci_clear_mwi(struct pci_dev *dev) { }

/* The device has power, and keeps it. */
int pci_set_power_state(struct pci_dev *dev, pci_power_t state)
{
	return 0;
}

/* No device wakes the machine. */
int pci_enable_wake(struct pci_dev *dev, pci_power_t state, bool enable)
{
	return 0;
}

/* No device wakes the machine. */
void pci_pme_active(struct pci_dev *dev, bool enable) { }

/* The base addresses of such a kind, as a bit for each. */
int pci_select_bars(struct pci_dev *dev, unsigned long flags)
{
	int bars = 0;

	for (int i = 0; i < PCI_STD_NUM_BARS; i++)
		if (pci_resource_flags(dev, i) & flags)
			bars |= 1 << i;
	return bars;
}

/* Allocates the ports; memory is mapped later. */
int pci_request_selected_regions(struct pci_dev *dev, int bars, const char *name)
{
	for (int i = 0; i < PCI_STD_NUM_BARS; i++)
		if (bars & 1 << i && pci_resource_flags(dev, i) & IORESOURCE_IO &&
		    osenv_io_alloc(pci_resource_start(dev, i), pci_resource_len(dev, i)))
			return -EBUSY;
	return 0;
}

int pci_request_regions(struct pci_dev *dev, const char *name)
{
	return pci_request_selected_regions(dev, ~0, name);
}

int pci_request_region(struct pci_dev *dev, int index, const char *name)
{
	return pci_request_selected_regions(dev, 1 << index, name);
}

/* Ports stay the driver's until it ends. */
void pci_release_regions(struct pci_dev *dev) { }

/* Registers. Addresses below 64 Ki are ports. */

void __iomem *ioremap(phys_addr_t start, size_t size)
{
	void *address;

	return osenv_mem_map_phys(start, size, &address, 0) ? NULL : address;
}

/* A mapping stays until the driver ends. */
void iounmap(volatile void __iomem *address) { }

void __iomem *pci_iomap(struct pci_dev *dev, int index, unsigned long most)
{
	resource_size_t start = pci_resource_start(dev, index), size = pci_resource_len(dev, index);

	if (!size)
		return NULL;
	if (pci_resource_flags(dev, index) & IORESOURCE_IO)
		return osenv_io_alloc(start, size) ? NULL : (void __iomem *)start;
	return ioremap(start, size);
}

void __iomem *pci_ioremap_bar(struct pci_dev *dev, int index)
{
	return pci_iomap(dev, index, 0);
}

/* A mapping stays until the driver ends. */
void pci_iounmap(struct pci_dev *dev, void __iomem *address) { }

/* The driver's function that an address is in. */
static const char *function_at(unsigned long address)
{
	const struct lx_symbol *best = NULL;

	for (unsigned long i = 0; i < lx_symbols_count; i++)
		if (lx_symbols[i].address <= address && (!best || lx_symbols[i].address > best->address))
			best = &lx_symbols[i];
	return best ? best->name : "(unknown)";
}

/* The driver's function that contains an address has touched ports that it was not granted. The driver ends here;
 * if it was told to go on (lx_ones), it reads ones, and its writes are lost. The first access to each port is
 * reported. */
static noinline bool touched(unsigned long port, int size, void *by)
{
	static const char touches[] = "%s touches port %#lx (%d bytes), which it was not granted%s";
	static DECLARE_BITMAP(told, LX_PORTS);
	const char *who = function_at((unsigned long)by);

	if (!lx_ones)
		osenv_panic(touches, who, port, size, "");
	if (!test_and_set_bit(port, told))
		osenv_log(OSENV_LOG_ERR, touches, who, port, size, ": it reads ones");
	return false;
}

/* Whether the driver was granted these ports. Inlined into the function that the driver has called, so that the
 * return address is in the driver. */
static __always_inline bool may(unsigned long port, int size)
{
	return likely(osenv_io_granted(port, size)) || touched(port, size, __builtin_return_address(0));
}

/* Reads and writes of each size, under both of Linux's names: by MMIO, in order with all other memory accesses as
 * on x86, or by ports. */
#define REGISTERS(suffix, bits, type, in, out)                                                    \
	static __always_inline type read##suffix##_at(const volatile void __iomem *address)       \
	{                                                                                         \
		type value;                                                                       \
                                                                                                  \
		if ((unsigned long)address >= LX_PORTS)                                           \
			return *(const volatile type __force *)address;                           \
		if (!may((unsigned long)address, sizeof(type)))                                   \
			return ~0;                                                                \
		asm volatile(in : "=a"(value) : "d"((u16)(unsigned long)address));                \
		return value;                                                                     \
	}                                                                                         \
	static __always_inline void write##suffix##_at(type value, volatile void __iomem *address) \
	{                                                                                         \
		if ((unsigned long)address >= LX_PORTS)                                           \
			*(volatile type __force *)address = value;                                \
		else if (may((unsigned long)address, sizeof(type)))                               \
			asm volatile(out : : "a"(value), "d"((u16)(unsigned long)address));       \
	}                                                                                         \
	type __raw_read##suffix(const volatile void __iomem *address)                             \
	{                                                                                         \
		return read##suffix##_at(address);                                                \
	}                                                                                         \
	void __raw_write##suffix(type value, volatile void __iomem *address)                      \
	{                                                                                         \
		write##suffix##_at(value, address);                                               \
	}                                                                                         \
	unsigned int ioread##bits(const void __iomem *address)                                    \
	{                                                                                         \
		return read##suffix##_at(address);                                                \
	}                                                                                         \
	void iowrite##bits(type value, void __iomem *address)                                     \
	{                                                                                         \
		write##suffix##_at(value, address);                                               \
	}                                                                                         \
	void ioread##bits##_rep(const void __iomem *address, void *to, unsigned long count)       \
	{                                                                                         \
		for (type *at = to; count--; at++)                                                \
			*at = read##suffix##_at(address);                                         \
	}                                                                                         \
	void iowrite##bits##_rep(void __iomem *address, const void *from, unsigned long count)    \
	{                                                                                         \
		for (const type *at = from; count--; at++)                                        \
			write##suffix##_at(*at, address);                                         \
	}

REGISTERS(b, 8, u8, "inb %w1, %b0", "outb %b0, %w1")
REGISTERS(w, 16, u16, "inw %w1, %w0", "outw %w0, %w1")
REGISTERS(l, 32, u32, "inl %w1, %k0", "outl %k0, %w1")

void memcpy_fromio(void *to, const volatile void __iomem *from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((u8 *)to)[i] = __raw_readb(from + i);
}

void memcpy_toio(volatile void __iomem *to, const void *from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		__raw_writeb(((const u8 *)from)[i], to + i);
}

/* Memory that devices reach: all of the arena, and no cache needs to be flushed. */

void *dma_alloc_attrs(struct device *dev, size_t size, dma_addr_t *handle, gfp_t flags,
		      unsigned long attrs)
{
	void *block = osenv_mem_alloc(size, OSENV_AUTO_SIZE | OSENV_PHYS_CONTIG, PAGE_SIZE);

	if (block) {
		memset(block, 0, size);
		*handle = __pa(block);
	}
	return block;
}

void *dmam_alloc_attrs(struct device *dev, size_t size, dma_addr_t *handle, gfp_t flags,
		       unsigned long attrs)
{
	return dma_alloc_attrs(dev, size, handle, flags, attrs);
}

void dma_free_attrs(struct device *dev, size_t size, void *block, dma_addr_t handle,
		    unsigned long attrs)
{
	kfree(block);
}

unsigned int dma_map_sg_attrs(struct device *dev, struct scatterlist *list, int count,
			      enum dma_data_direction direction, unsigned long attrs)
{
	struct scatterlist *piece;
	int i;

	for_each_sg(list, piece, count, i) {
		sg_dma_address(piece) = sg_phys(piece);
		sg_dma_len(piece) = piece->length;
	}
	return count;
}

/* Nothing was mapped: devices reach all memory directly. */
void dma_unmap_sg_attrs(struct device *dev, struct scatterlist *list, int count,
			enum dma_data_direction direction, unsigned long attrs) { }

dma_addr_t dma_map_page_attrs(struct device *dev, struct page *page, size_t offset, size_t size,
			      enum dma_data_direction direction, unsigned long attrs)
{
	return page_to_phys(page) + offset;
}

/* Nothing was mapped: devices reach all memory directly. */
void dma_unmap_page_attrs(struct device *dev, dma_addr_t handle, size_t size,
			  enum dma_data_direction direction, unsigned long attrs) { }

/* No cache needs to be flushed. */
void dma_sync_single_for_cpu(struct device *dev, dma_addr_t handle, size_t size,
			     enum dma_data_direction direction) { }

/* No cache needs to be flushed. */
void dma_sync_single_for_device(struct device *dev, dma_addr_t handle, size_t size,
				enum dma_data_direction direction) { }

/* The arena ends below 4 GB. */
int dma_set_mask(struct device *dev, u64 mask)
{
	return mask >= DMA_BIT_MASK(32) ? 0 : -EIO;
}

int dma_set_coherent_mask(struct device *dev, u64 mask)
{
	return dma_set_mask(dev, mask);
}

struct dma_pool {
	size_t size, align;
};

struct dma_pool *dma_pool_create(const char *name, struct device *dev, size_t size, size_t align,
				 size_t boundary)
{
	struct dma_pool *pool = kmalloc(sizeof(*pool), GFP_KERNEL);

	if (pool)
		*pool = (struct dma_pool){ size, align };
	return pool;
}

void dma_pool_destroy(struct dma_pool *pool)
{
	kfree(pool);
}

void *dma_pool_alloc(struct dma_pool *pool, gfp_t flags, dma_addr_t *handle)
{
	void *block = osenv_mem_alloc(pool->size, OSENV_AUTO_SIZE | OSENV_PHYS_CONTIG, pool->align);

	if (block) {
		if (flags & __GFP_ZERO)
			memset(block, 0, pool->size);
		*handle = __pa(block);
	}
	return block;
}

void dma_pool_free(struct dma_pool *pool, void *block, dma_addr_t handle)
{
	kfree(block);
}

/* There is only one driver. */
const char *dev_driver_string(const struct device *dev)
{
	return "driver";
}

/* Lines about devices. */
void _dev_printk(const char *level, const struct device *dev, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	lx_print(printk_get_level(level) - '0', "", format, list);
	va_end(list);
}

#define DEV_LINE(name, level)                                                                     \
	void name(const struct device *dev, const char *format, ...)                              \
	{                                                                                         \
		va_list list;                                                                     \
                                                                                                  \
		va_start(list, format);                                                           \
		lx_print(level, "", format, list);                                                \
		va_end(list);                                                                     \
	}

DEV_LINE(_dev_err, OSENV_LOG_ERR)
DEV_LINE(_dev_warn, OSENV_LOG_WARNING)
DEV_LINE(_dev_notice, OSENV_LOG_NOTICE)
DEV_LINE(_dev_info, OSENV_LOG_INFO)
