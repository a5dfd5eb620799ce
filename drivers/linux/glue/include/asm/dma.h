/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Channels of ISA DMA: User-Mode Linux has none. What drivers of sound have them move is said by functions of ALSA's, in sound.c. */
#ifndef LX_ASM_DMA_H
#define LX_ASM_DMA_H

#include <osenv.h>

extern unsigned long uml_physmem;

#define MAX_DMA_ADDRESS (uml_physmem)

/* As the controller's: which way, and round and round. */
#define DMA_MODE_READ 0x44
#define DMA_MODE_WRITE 0x48
#define DMA_AUTOINIT 0x10

#define request_dma(channel, name) osenv_isadma_alloc(channel)
#define free_dma(channel) osenv_isadma_free(channel)

#endif
