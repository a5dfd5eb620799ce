// SPDX-License-Identifier: GPL-2.0-or-later
/* Network cards: frames between the server (../src/lib.rs) and Linux's driver of one card. */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/mii.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/slab.h>

#include "lx.h"

/* Frames: a header, and behind the data the information that Linux keeps there. */

/* Makes a header for a block of so many bytes. */
struct sk_buff *napi_build_skb(void *data, unsigned int size)
{
	struct sk_buff *skb = kzalloc(sizeof(*skb), GFP_ATOMIC);

	if (!skb)
		return NULL;
	size -= SKB_DATA_ALIGN(sizeof(struct skb_shared_info));
	skb->head = skb->data = data;
	skb_reset_tail_pointer(skb);
	skb->end = size;
	skb->truesize = SKB_TRUESIZE(size);
	skb->mac_header = (typeof(skb->mac_header))~0U;
	skb->transport_header = (typeof(skb->transport_header))~0U;
	refcount_set(&skb->users, 1);
	memset(skb_shinfo(skb), 0, sizeof(struct skb_shared_info));
	return skb;
}

static struct sk_buff *allocate(unsigned int size, unsigned int headroom)
{
	struct sk_buff *skb;
	u8 *data;

	size = SKB_DATA_ALIGN(size + headroom) + SKB_DATA_ALIGN(sizeof(struct skb_shared_info));
	data = kmalloc(size, GFP_ATOMIC);
	if (!data)
		return NULL;
	skb = napi_build_skb(data, size);
	if (skb)
		skb_reserve(skb, headroom);
	else
		kfree(data);
	return skb;
}

/* Allocates room for an incoming frame: a page, so that its beginning is known when it is freed by an address
 * inside it. */
void *__netdev_alloc_frag_align(unsigned int size, unsigned int mask)
{
	if (size > PAGE_SIZE)
		return NULL;
	return osenv_mem_alloc(PAGE_SIZE, OSENV_AUTO_SIZE | OSENV_PHYS_CONTIG, PAGE_SIZE);
}

void page_frag_free(void *address)
{
	kfree((void *)((unsigned long)address & PAGE_MASK));
}

struct sk_buff *__netdev_alloc_skb(struct net_device *dev, unsigned int size, gfp_t flags)
{
	struct sk_buff *skb = allocate(size, NET_SKB_PAD);

	if (skb)
		skb->dev = dev;
	return skb;
}

struct sk_buff *__napi_alloc_skb(struct napi_struct *napi, unsigned int size, gfp_t flags)
{
	return __netdev_alloc_skb(napi->dev, size + NET_IP_ALIGN, flags);
}

/* A frame is one piece, and is not shared. */
void kfree_skb_reason(struct sk_buff *skb, enum skb_drop_reason reason)
{
	if (!skb)
		return;
	kfree(skb->head);
	kfree(skb);
}

void __dev_kfree_skb_any(struct sk_buff *skb, enum skb_free_reason reason)
{
	consume_skb(skb);
}

void __dev_kfree_skb_irq(struct sk_buff *skb, enum skb_free_reason reason)
{
	consume_skb(skb);
}

void napi_consume_skb(struct sk_buff *skb, int budget)
{
	consume_skb(skb);
}

void *skb_put(struct sk_buff *skb, unsigned int size)
{
	void *end = skb_tail_pointer(skb);

	skb->tail += size;
	skb->len += size;
	if (unlikely(skb->tail > skb->end))
		osenv_panic("it puts %u bytes into a frame without room", size);
	return end;
}

void *skb_pull(struct sk_buff *skb, unsigned int size)
{
	return skb_pull_inline(skb, size);
}

void skb_trim(struct sk_buff *skb, unsigned int size)
{
	if (skb->len > size)
		__skb_trim(skb, size);
}

int __skb_pad(struct sk_buff *skb, int size, bool free_on_error)
{
	if (skb_tailroom(skb) < size) {
		if (free_on_error)
			kfree_skb(skb);
		return -ENOMEM;
	}
	memset(skb_tail_pointer(skb), 0, size);
	return 0;
}

/* No program asks when a frame was sent. */
void skb_tstamp_tx(struct sk_buff *skb, struct skb_shared_hwtstamps *stamps) { }

__be16 eth_type_trans(struct sk_buff *skb, struct net_device *dev)
{
	const struct ethhdr *header;

	skb->dev = dev;
	skb_reset_mac_header(skb);
	header = eth_hdr(skb);
	skb_pull_inline(skb, ETH_HLEN);
	if (!ether_addr_equal(header->h_dest, dev->dev_addr))
		skb->pkt_type = is_broadcast_ether_addr(header->h_dest) ? PACKET_BROADCAST :
				is_multicast_ether_addr(header->h_dest) ? PACKET_MULTICAST :
									  PACKET_OTHERHOST;
	return header->h_proto;
}

/* The card. */

static struct net_device *card;

struct net_device *alloc_netdev_mqs(int private, const char *name, unsigned char assign,
				    void (*setup)(struct net_device *), unsigned int txqs,
				    unsigned int rxqs)
{
	struct net_device *dev = kzalloc(ALIGN(sizeof(*dev), NETDEV_ALIGN) + private, GFP_KERNEL);

	if (!dev)
		return NULL;
	dev->dev_addr = kzalloc(MAX_ADDR_LEN, GFP_KERNEL);
	dev->_tx = kcalloc(txqs, sizeof(*dev->_tx), GFP_KERNEL);
	if (!dev->dev_addr || !dev->_tx)
		return NULL;
	for (unsigned int i = 0; i < txqs; i++)
		dev->_tx[i].dev = dev;
	dev->num_tx_queues = dev->real_num_tx_queues = txqs;
	dev->num_rx_queues = dev->real_num_rx_queues = rxqs;
	INIT_LIST_HEAD(&dev->napi_list);
	INIT_LIST_HEAD(&dev->uc.list);
	INIT_LIST_HEAD(&dev->mc.list);
	setup(dev);
	strscpy(dev->name, name, sizeof(dev->name));
	return dev;
}

void ether_setup(struct net_device *dev)
{
	dev->type = ARPHRD_ETHER;
	dev->hard_header_len = ETH_HLEN;
	dev->min_header_len = ETH_HLEN;
	dev->mtu = ETH_DATA_LEN;
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = ETH_DATA_LEN;
	dev->addr_len = ETH_ALEN;
	dev->flags = IFF_BROADCAST | IFF_MULTICAST;
	eth_broadcast_addr(dev->broadcast);
}

struct net_device *alloc_etherdev_mqs(int private, unsigned int txqs, unsigned int rxqs)
{
	return alloc_netdev_mqs(private, "eth%d", NET_NAME_ENUM, ether_setup, txqs, rxqs);
}

struct net_device *devm_alloc_etherdev_mqs(struct device *dev, int private, unsigned int txqs,
					   unsigned int rxqs)
{
	return alloc_etherdev_mqs(private, txqs, rxqs);
}

void free_netdev(struct net_device *dev)
{
	kfree(dev->dev_addr);
	kfree(dev->_tx);
	kfree(dev);
}

int register_netdev(struct net_device *dev)
{
	int error = 0;

	if (card)
		return -EBUSY;
	if (dev->netdev_ops->ndo_init)
		error = dev->netdev_ops->ndo_init(dev);
	if (error)
		return error;
	strscpy(dev->name, "eth0", sizeof(dev->name));
	dev->reg_state = NETREG_REGISTERED;
	card = dev;
	return 0;
}

/* Asked by drivers/net/Space.c, before any card is registered. */
struct net init_net;

struct net_device *__dev_get_by_name(struct net *net, const char *name)
{
	return card && !strcmp(card->name, name) ? card : NULL;
}

void dev_addr_mod(struct net_device *dev, unsigned int offset, const void *address, size_t size)
{
	memcpy((u8 *)dev->dev_addr + offset, address, size);
}

int eth_validate_addr(struct net_device *dev)
{
	return is_valid_ether_addr(dev->dev_addr) ? 0 : -EADDRNOTAVAIL;
}

/* Frames wait as long as there is no link; Linux drops them. */
void netif_carrier_on(struct net_device *dev)
{
	if (test_and_clear_bit(__LINK_STATE_NOCARRIER, &dev->state))
		lx_room();
}

void netif_carrier_off(struct net_device *dev)
{
	set_bit(__LINK_STATE_NOCARRIER, &dev->state);
}

void netif_device_attach(struct net_device *dev)
{
	set_bit(__LINK_STATE_PRESENT, &dev->state);
}

void netif_device_detach(struct net_device *dev)
{
	clear_bit(__LINK_STATE_PRESENT, &dev->state);
}

void netif_tx_wake_queue(struct netdev_queue *queue)
{
	if (test_and_clear_bit(__QUEUE_STATE_DRV_XOFF, &queue->state))
		lx_room();
}

/* Whether more frames follow at once (netdev_xmit_more): never. */
DEFINE_PER_CPU_ALIGNED(struct softnet_data, softnet_data);

unsigned long dev_trans_start(struct net_device *dev)
{
	return READ_ONCE(netdev_get_tx_queue(dev, 0)->trans_start);
}

/* There is one process-level thread, so it always has the lock. */
void rtnl_lock(void) { }

/* No thread waits for the lock. */
void rtnl_unlock(void) { }

/* Frames that have arrived and that no client has taken yet, in order. A poll brings at most as many as it was
 * asked for; frames that a handler brings (netif_rx) are dropped when there are so many. */

#define MOST_FRAMES 64

static struct sk_buff *first_frame, **last_frame = &first_frame;
static unsigned int frames;

static int keep(struct sk_buff *skb)
{
	int was = um_set_signals(0), room = frames < MOST_FRAMES;

	if (room) {
		skb->next = NULL;
		*last_frame = skb;
		last_frame = &skb->next;
		frames++;
	}
	um_set_signals(was);
	if (!room)
		kfree_skb(skb);
	return room ? NET_RX_SUCCESS : NET_RX_DROP;
}

static struct sk_buff *take(void)
{
	int was = um_set_signals(0);
	struct sk_buff *skb = first_frame;

	if (skb) {
		first_frame = skb->next;
		frames--;
		if (!first_frame)
			last_frame = &first_frame;
		skb->next = NULL;
	}
	um_set_signals(was);
	return skb;
}

int netif_receive_skb(struct sk_buff *skb)
{
	return keep(skb);
}

gro_result_t napi_gro_receive(struct napi_struct *napi, struct sk_buff *skb)
{
	return keep(skb) == NET_RX_SUCCESS ? GRO_NORMAL : GRO_MERGED_FREE;
}

int netif_rx(struct sk_buff *skb)
{
	int result = keep(skb);

	lx_came();
	return result;
}

/* NAPI: the process-level thread polls what is scheduled, when a client wants frames. */

static LIST_HEAD(polls);

void netif_napi_add_weight(struct net_device *dev, struct napi_struct *napi,
			   int (*poll)(struct napi_struct *, int), int weight)
{
	INIT_LIST_HEAD(&napi->poll_list);
	napi->dev = dev;
	napi->poll = poll;
	napi->weight = weight;
	napi->state = NAPIF_STATE_SCHED;
	list_add(&napi->dev_list, &dev->napi_list);
}

void napi_enable(struct napi_struct *napi)
{
	clear_bit(NAPI_STATE_SCHED, &napi->state);
}

/* Only the process-level thread polls, and it is here. */
void napi_disable(struct napi_struct *napi)
{
	int was = um_set_signals(0);

	set_bit(NAPI_STATE_SCHED, &napi->state);
	list_del_init(&napi->poll_list);
	um_set_signals(was);
}

bool napi_schedule_prep(struct napi_struct *napi)
{
	return !test_and_set_bit(NAPI_STATE_SCHED, &napi->state);
}

void __napi_schedule(struct napi_struct *napi)
{
	int was = um_set_signals(0);

	list_add_tail(&napi->poll_list, &polls);
	um_set_signals(was);
	lx_came();
}

void __napi_schedule_irqoff(struct napi_struct *napi)
{
	__napi_schedule(napi);
}

bool napi_complete_done(struct napi_struct *napi, int work)
{
	int was = um_set_signals(0);

	list_del_init(&napi->poll_list);
	clear_bit(NAPI_STATE_SCHED, &napi->state);
	um_set_signals(was);
	return true;
}

/* Polls the first that is scheduled, for at most so many frames. Returns whether there was one. */
static bool poll(int budget)
{
	int was = um_set_signals(0);
	struct napi_struct *napi = list_first_entry_or_null(&polls, struct napi_struct, poll_list);

	um_set_signals(was);
	if (!napi)
		return false;
	local_bh_disable();
	napi->poll(napi, min(budget, napi->weight));
	local_bh_enable();
	return true;
}

/* The watchdog of Linux's scheduler (net/sched/sch_generic.c): tells the driver when nothing has been sent for too
 * long. */

static struct timer_list watchdog;

static void watch(struct timer_list *timer)
{
	struct netdev_queue *queue = netdev_get_tx_queue(card, 0);

	if (netif_xmit_stopped(queue) &&
	    time_after(jiffies, queue->trans_start + card->watchdog_timeo) &&
	    card->netdev_ops->ndo_tx_timeout) {
		osenv_log(OSENV_LOG_WARNING, "nothing was sent for too long");
		card->netdev_ops->ndo_tx_timeout(card, 0);
	}
	mod_timer(timer, jiffies + card->watchdog_timeo);
}

/* The functions that the server calls. */

int lx_net_start(void);
int lx_net_start(void)
{
	const struct net_device_ops *ops;
	int error;

	error = lx_start();
	if (error || !card)
		return error ?: -ENODEV;
	ops = card->netdev_ops;
	set_bit(__LINK_STATE_PRESENT, &card->state);
	set_bit(__LINK_STATE_START, &card->state);
	card->flags |= IFF_UP;
	if (ops->ndo_validate_addr)
		error = ops->ndo_validate_addr(card);
	if (!error && ops->ndo_open)
		error = ops->ndo_open(card);
	if (error)
		return error;
	/* IPv6 finds neighbours by multicast addresses, which the server knows and the card is not told. */
	card->flags |= IFF_ALLMULTI;
	if (ops->ndo_set_rx_mode) {
		local_bh_disable();
		ops->ndo_set_rx_mode(card);
		local_bh_enable();
	}
	if (card->watchdog_timeo <= 0)
		card->watchdog_timeo = 5 * HZ;
	timer_setup(&watchdog, watch, 0);
	mod_timer(&watchdog, jiffies + card->watchdog_timeo);
	return 0;
}

/* The card's address, the first byte at the top. */
u64 lx_net_address(void);
u64 lx_net_address(void)
{
	return ether_addr_to_u64(card->dev_addr);
}

int lx_net_has_room(void);
int lx_net_has_room(void)
{
	/* Work may have to find out whether there is a link. */
	lx_run_works();
	/* A poll may have to find out what was sent; the frames that it receives are kept. */
	if (netif_xmit_stopped(netdev_get_tx_queue(card, 0)) && frames < MOST_FRAMES)
		poll(MOST_FRAMES - frames);
	return netif_carrier_ok(card) && !netif_xmit_stopped(netdev_get_tx_queue(card, 0));
}

/* Sends a frame. Returns 1, or 0 if there is no room. */
int lx_net_send(const void *frame, unsigned int size);
int lx_net_send(const void *frame, unsigned int size)
{
	struct netdev_queue *queue = netdev_get_tx_queue(card, 0);
	struct sk_buff *skb;
	netdev_tx_t sent;

	if (!lx_net_has_room())
		return 0;
	skb = allocate(max_t(unsigned int, size, ETH_ZLEN), NET_SKB_PAD);
	if (!skb)
		return 0;
	memcpy(skb_put(skb, size), frame, size);
	skb->dev = card;
	skb_reset_mac_header(skb);
	skb->protocol = eth_hdr(skb)->h_proto;
	local_bh_disable();
	sent = card->netdev_ops->ndo_start_xmit(skb, card);
	if (sent == NETDEV_TX_OK)
		txq_trans_update(queue);
	local_bh_enable();
	if (sent != NETDEV_TX_OK)
		kfree_skb(skb);
	return sent == NETDEV_TX_OK;
}

/* Whether there may be frames to receive, or work to do. */
int lx_net_is_pending(void);
int lx_net_is_pending(void)
{
	return first_frame || !list_empty(&polls) || lx_has_works();
}

/* Takes at most so many frames, in the form of a batch of services::link. Returns the bytes of the batch. */
unsigned long lx_net_receive(u8 *batch, unsigned int most);
unsigned long lx_net_receive(u8 *batch, unsigned int most)
{
	u8 *end = batch;

	lx_run_works();
	/* A driver that always has more to do, and brings no frames, goes on at the next call. */
	for (int turns = MOST_FRAMES; most && turns; turns--) {
		struct sk_buff *skb = take();
		unsigned int size;

		if (!skb) {
			if (!poll(most))
				break;
			continue;
		}
		/* eth_type_trans() has taken the header off, if there was one: behind a frame that is shorter than a header
		 * are bytes of another frame. */
		size = skb->len + ETH_HLEN;
		if (size <= ETH_FRAME_LEN && skb->data >= skb_mac_header(skb) + ETH_HLEN) {
			end[0] = size;
			end[1] = size >> 8;
			memcpy(end + 2, skb_mac_header(skb), size);
			end += 2 + size;
			most--;
		}
		consume_skb(skb);
	}
	return end - batch;
}

/* Lines about cards. */
#define NETDEV_LINE(name, level)                                                                  \
	void name(const struct net_device *dev, const char *format, ...)                          \
	{                                                                                         \
		va_list list;                                                                     \
                                                                                                  \
		va_start(list, format);                                                           \
		lx_print(level, "", format, list);                                                \
		va_end(list);                                                                     \
	}

NETDEV_LINE(netdev_err, OSENV_LOG_ERR)
NETDEV_LINE(netdev_warn, OSENV_LOG_WARNING)
NETDEV_LINE(netdev_notice, OSENV_LOG_NOTICE)
NETDEV_LINE(netdev_info, OSENV_LOG_INFO)

void netdev_printk(const char *level, const struct net_device *dev, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	lx_print(printk_get_level(level) - '0', "", format, list);
	va_end(list);
}
