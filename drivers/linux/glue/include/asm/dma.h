/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Channels of ISA DMA, which User-Mode Linux does not have. Drivers of sound start transfers by functions of ALSA,
 * in sound.c. */
#ifndef LX_ASM_DMA_H
#define LX_ASM_DMA_H

#include <osenv.h>

extern unsigned long uml_physmem;

#define MAX_DMA_ADDRESS (uml_physmem)

/* Modes, as the controller has them: the direction, and repetition. */
#define DMA_MODE_READ 0x44
#define DMA_MODE_WRITE 0x48
#define DMA_AUTOINIT 0x10

#define request_dma(channel, name) osenv_isadma_alloc(channel)
#define free_dma(channel) osenv_isadma_free(channel)

#endif
