/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The glue between Linux's drivers and osenv. Each function replaces Linux's function of the same name, and its
 * comment says where it differs; functions that begin with lx_ are the glue's own. For all of it:
 *
 * - The process-level thread of the driver set is Linux's process context, and there is only one. It also polls
 *   (NAPI) and runs work.
 * - Handlers of interrupts run on threads of the kit and are atomic to it. So are timers, unless they run when
 *   softirqs are enabled again.
 * - All memory is the kit's arena: contiguous, so that __pa() is a subtraction (uml_physmem) and pages are numbers
 *   (mem_map).
 */
#ifndef LX_H
#define LX_H

#include <linux/types.h>
#include <osenv.h>

/* Addresses of registers below this are I/O ports. */
#define LX_PORTS 0x10000UL
/* Most bytes of memory that a device and its driver share. */
#define LX_MEMORY 0x300000UL
/* Most interrupt lines. */
#define LX_LINES 16

/* core.c */
void lx_begin(void);
/* Runs Linux's module_init functions: 0, or an error. */
int lx_initcalls(void);
/* Runs work that is queued. In process context. */
void lx_run_works(void);
bool lx_has_works(void);
/* Prints a line at Linux's level. */
void lx_print(int level, const char *prefix, const char *format, __builtin_va_list list);

/* pci.c */
/* Finds the PCI function of this driver, if it has one, and resets it before anything allocates memory. Starts the
 * driver. Returns 0, or an error. */
int lx_start(void);

/* Made by the build, in the driver's program: the driver's functions, and two settings. */
struct lx_symbol {
	unsigned long address;
	const char *name;
};
extern const struct lx_symbol lx_symbols[];
extern const unsigned long lx_symbols_count;
/* A parameter of the module with its value, or an empty string. */
extern const char lx_parameter[];
/* Whether the driver goes on when it touches a port that it was not granted, and reads ones. */
extern const bool lx_ones;

/* Functions of the server, ../src: something has arrived or is done; frames can be sent again. */
void lx_came(void);
void lx_room(void);

#endif
