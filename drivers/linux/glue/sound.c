// SPDX-License-Identifier: GPL-2.0-or-later
/* Sound: the functions of ALSA that a driver of an ISA card uses, and a ring of samples that plays. ALSA's core is
 * not there: a card is a piece of memory, its controls are a list whose volumes are set once, and the server takes
 * the place of a program that opens /dev/snd. */
#include <linux/interrupt.h>
#include <linux/isa.h>
#include <linux/isa-dma.h>
#include <linux/slab.h>
#include <sound/control.h>
#include <sound/core.h>
#include <sound/opl3.h>
#include <sound/pcm.h>

#include "lx.h"

/* ISA devices: the driver is asked for the first one, and detects it by itself. */

static struct device isa_device = {
	.init_name = "isa",
	.devres_head = LIST_HEAD_INIT(isa_device.devres_head),
};

int isa_register_driver(struct isa_driver *driver, unsigned int most)
{
	if (driver->match && !driver->match(&isa_device, 0))
		return -ENODEV;
	return driver->probe(&isa_device, 0);
}

/* Allocated until the driver ends. */
struct resource *__devm_request_region(struct device *dev, struct resource *parent,
				       resource_size_t start, resource_size_t size,
				       const char *name)
{
	return __request_region(parent, start, size, name, 0);
}

/* Channels of ISA DMA. The device server has the controller; it accepts transfers of the driver's own memory only. */

int snd_devm_request_dma(struct device *dev, int channel, const char *name)
{
	return request_dma(channel, name);
}

/* The channel that was started last. */
static int used = -1;

void snd_dma_program(unsigned long channel, unsigned long physical, unsigned int size,
		     unsigned short mode)
{
	used = channel;
	osenv_isadma_start(channel, physical, size,
			   (mode & DMA_MODE_READ & ~DMA_MODE_WRITE ? OSENV_ISADMA_TO_MEMORY : 0) |
			   (mode & DMA_AUTOINIT ? OSENV_ISADMA_AGAIN : 0));
}

void snd_dma_disable(unsigned long channel)
{
	osenv_isadma_stop(channel);
}

unsigned int snd_dma_pointer(unsigned long channel, unsigned int size)
{
	unsigned int left = osenv_isadma_left(channel);

	return left && left < size ? size - left : 0;
}

/* The card. */

static struct snd_card *card;
static struct snd_pcm_substream *playback;

int snd_devm_card_new(struct device *parent, int index, const char *id, struct module *module,
		      size_t extra, struct snd_card **made)
{
	card = kzalloc(sizeof(*card) + extra, GFP_KERNEL);
	if (!card)
		return -ENOMEM;
	card->dev = parent;
	card->private_data = card + 1;
	INIT_LIST_HEAD(&card->controls);
	*made = card;
	return 0;
}

/* The server gets the card by lx_sound_ functions once the driver has begun: no other program looks for it. */
int snd_card_register(struct snd_card *registered)
{
	return 0;
}

/* Component names are for programs that list cards. */
int snd_component_add(struct snd_card *of, const char *component)
{
	return 0;
}

/* No program here plays notes: the card's synthesizer is not used. */
int snd_opl3_create(struct snd_card *of, unsigned long left, unsigned long right,
		    unsigned short hardware, int integrated, struct snd_opl3 **made)
{
	*made = NULL;
	return 0;
}

/* As snd_opl3_create(): the synthesizer is not used. */
int snd_opl3_hwdep_new(struct snd_opl3 *of, int device, int sequencer, struct snd_hwdep **made)
{
	return 0;
}

struct snd_kcontrol *snd_ctl_new1(const struct snd_kcontrol_new *new, void *data)
{
	struct snd_kcontrol *control = kzalloc(struct_size(control, vd, 1), GFP_KERNEL);

	if (!control)
		return NULL;
	strscpy(control->id.name, new->name ?: "", sizeof(control->id.name));
	control->info = new->info;
	control->put = new->put;
	control->private_value = new->private_value;
	control->private_data = data;
	return control;
}

int snd_ctl_add(struct snd_card *to, struct snd_kcontrol *control)
{
	if (!control)
		return -ENOMEM;
	list_add_tail(&control->list, &to->controls);
	return 0;
}

/* A card begins muted. Volumes are set to the maximum: the client decides how loud its samples are. */
static void set_loud(const char *name)
{
	static struct snd_ctl_elem_info info;
	static struct snd_ctl_elem_value value;
	struct snd_kcontrol *control;

	list_for_each_entry(control, &card->controls, list)
		if (!strcmp(control->id.name, name) && !control->info(control, &info)) {
			for (int i = 0; i < 2; i++)
				value.value.integer.value[i] = info.value.integer.max;
			control->put(control, &value);
		}
}

/* Streams: one to play, and one to record, which is never opened. */
int snd_pcm_new(struct snd_card *of, const char *id, int device, int plays, int records,
		struct snd_pcm **made)
{
	struct snd_pcm *pcm = kzalloc(sizeof(*pcm), GFP_KERNEL);

	playback = kzalloc(sizeof(*playback), GFP_KERNEL);
	if (!pcm || !playback)
		return -ENOMEM;
	pcm->card = of;
	playback->pcm = pcm;
	playback->stream = SNDRV_PCM_STREAM_PLAYBACK;
	*made = pcm;
	return 0;
}

void snd_pcm_set_ops(struct snd_pcm *pcm, int direction, const struct snd_pcm_ops *ops)
{
	if (direction == SNDRV_PCM_STREAM_PLAYBACK)
		playback->ops = ops;
}

/* There are only two formats here. */
int snd_pcm_format_unsigned(snd_pcm_format_t format)
{
	return format == SNDRV_PCM_FORMAT_U8;
}

/* The ring is allocated when something plays. */
int snd_pcm_set_managed_buffer_all(struct snd_pcm *pcm, int type, struct device *dev, size_t size,
				   size_t most)
{
	return 0;
}

/* The ring. Played parts are overwritten with silence, so that a late client is heard as a gap, and never as a
 * repetition. */

#define RING_LEAST 0x1000
#define RING_MOST 0x10000
#define PERIODS 8

static struct snd_pcm_runtime runtime;
/* The device's position in the ring; bytes given to the ring since it was empty, and bytes of them that were
 * played; and bytes that were played before that. */
static unsigned int at;
static unsigned long written, played, before;
static bool is_open, runs;

static void silence(unsigned int from, unsigned int size)
{
	unsigned int first = min_t(unsigned int, size, runtime.dma_bytes - from);
	int none = snd_pcm_format_unsigned(runtime.format) ? 0x80 : 0;

	memset(runtime.dma_area + from, none, first);
	memset(runtime.dma_area, none, size - first);
}

/* Records the device's position. Interrupts must be disabled. */
static void advance(void)
{
	unsigned int now = frames_to_bytes(&runtime, playback->ops->pointer(playback));
	unsigned int moved = (now + runtime.dma_bytes - at) % runtime.dma_bytes;

	silence(at, moved);
	at = now;
	played += moved;
}

static void stop(void)
{
	playback->ops->trigger(playback, SNDRV_PCM_TRIGGER_STOP);
	runs = false;
}

/* Called by the driver's handler. The device stops when everything was played and a part of silence behind it:
 * bytes that are still in the device when it stops are lost. */
void snd_pcm_period_elapsed(struct snd_pcm_substream *substream)
{
	if (!runs)
		return;
	advance();
	if (played >= written + runtime.dma_bytes / PERIODS)
		stop();
	lx_came();
}

/* The functions that the server calls. */

int lx_sound_start(void)
{
	int error = lx_start();

	if (error || !playback || !playback->ops)
		return error ?: -ENODEV;
	set_loud("Master Playback Volume");
	set_loud("PCM Playback Volume");
	return 0;
}

/* Stops playing at once. */
void lx_sound_end(void)
{
	int was = um_set_signals(0);

	if (runs)
		stop();
	um_set_signals(was);
	if (is_open)
		playback->ops->close(playback);
	is_open = false;
	/* The channel must not use the ring's memory any more. */
	if (used >= 0)
		snd_dma_disable(used);
	used = -1;
	kfree(runtime.dma_area);
	memset(&runtime, 0, sizeof(runtime));
}

/* Prepares the device to begin with an empty ring. Returns 0, or an error. */
static int prepare(void)
{
	at = 0;
	before += written;
	written = played = 0;
	silence(0, runtime.dma_bytes);
	return playback->ops->prepare(playback);
}

/* Begins: samples of 8 bits unsigned, or 16 bits signed. Returns 0, or an error: the card does not support this, or
 * there is no memory. */
int lx_sound_begin(unsigned int rate, unsigned int channels, unsigned int bits)
{
	const struct snd_pcm_hardware *hw = &runtime.hw;
	unsigned int frame = channels * bits / 8;
	size_t size;

	lx_sound_end();
	before = written = 0;
	runtime.format = bits == 8 ? SNDRV_PCM_FORMAT_U8 : SNDRV_PCM_FORMAT_S16_LE;
	playback->runtime = &runtime;
	playback->private_data = playback->pcm->private_data;
	if (playback->ops->open(playback))
		return -EBUSY;
	is_open = true;
	if (!(hw->formats & pcm_format_to_bits(runtime.format)) || rate < hw->rate_min ||
	    rate > hw->rate_max || channels < hw->channels_min || channels > hw->channels_max)
		return -EINVAL;
	/* Half a second, or as much as the controller supports. */
	size = clamp_t(size_t, rounddown_pow_of_two(rate * frame / 2), RING_LEAST,
		       min_t(size_t, RING_MOST, hw->buffer_bytes_max));
	runtime.dma_area = osenv_mem_alloc(size, OSENV_AUTO_SIZE | OSENV_ISADMA_MEM, 1);
	if (!runtime.dma_area)
		return -ENOMEM;
	runtime.dma_addr = osenv_mem_get_phys((unsigned long)runtime.dma_area);
	runtime.dma_bytes = size;
	runtime.rate = rate;
	runtime.channels = channels;
	runtime.sample_bits = bits;
	runtime.frame_bits = 8 * frame;
	runtime.buffer_size = size / frame;
	runtime.periods = PERIODS;
	runtime.period_size = runtime.buffer_size / PERIODS;
	return prepare();
}

/* Bytes that the ring has room for. None while the device is close to the end of its data and about to stop: data
 * that is written now could come too late. */
unsigned long lx_sound_room(void)
{
	unsigned long left = written - min(played, written);

	return runs && left < runtime.dma_bytes / PERIODS ? 0 : runtime.dma_bytes - left;
}

/* Plays the contents of the ring. Returns whether it plays, or an error. */
int lx_sound_play(void)
{
	int was = um_set_signals(0), error = 0;

	if (!runs && written > played) {
		error = playback->ops->trigger(playback, SNDRV_PCM_TRIGGER_START);
		runs = !error;
	}
	um_set_signals(was);
	return error ?: runs;
}

/* Copies as many of these bytes as there is room for into the ring. Returns how many, or an error. The ring begins
 * to play when it is full. */
long lx_sound_write(const void *samples, unsigned int size)
{
	unsigned int to, first;
	int was, error = 0;

	/* The device has stopped because everything was played: begin again. */
	if (!runs && written && written <= played)
		error = prepare();
	was = um_set_signals(0);
	if (runs)
		advance();
	size = min_t(unsigned long, size, lx_sound_room());
	to = written % runtime.dma_bytes;
	first = min_t(unsigned int, size, runtime.dma_bytes - to);
	memcpy(runtime.dma_area + to, samples, first);
	memcpy(runtime.dma_area, samples + first, size - first);
	written += size;
	um_set_signals(was);
	if (!error && !runs && lx_sound_room() < runtime.dma_bytes / PERIODS)
		error = min(lx_sound_play(), 0);
	return error ?: (long)size;
}

/* Bytes that were played since the beginning, of those that were given. Bytes that the card may have fetched and
 * still hold do not count. */
unsigned long lx_sound_played(void)
{
	unsigned long held = runs ? runtime.dma_bytes / PERIODS : 0;

	return before + min(played - min(played, held), written);
}
