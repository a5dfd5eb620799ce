/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The glue between Linux's drivers and osenv. Each function stands for Linux's of the same name, and says where it differs; those
 * that begin with lx_ are the glue's own. What is said of all of it:
 *
 * - The process-level thread of the driver set is Linux's process context, and there is one. It also polls (NAPI) and runs work.
 * - Handlers of interrupts run on threads of the kit's and are atomic to it. Timers run so too, or when softirqs are enabled again.
 * - All memory is the kit's arena: contiguous, so that __pa() is a subtraction (uml_physmem) and pages are numbers (mem_map).
 */
#ifndef LX_H
#define LX_H

#include <linux/types.h>
#include <osenv.h>

/* Addresses of registers below this are I/O ports. */
#define LX_PORTS 0x10000UL
/* Most bytes of memory that a device and its driver share. */
#define LX_MEMORY 0x300000UL
/* Interrupt lines that there can be. */
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
/* Finds the PCI function of this driver, if it has one, and resets that before anything allocates memory. Starts the driver: 0, or an error. */
int lx_start(void);

/* Made by the build, in the driver's program: its functions, and how its device is reset. */
struct lx_symbol {
	unsigned long address;
	const char *name;
};
extern const struct lx_symbol lx_symbols[];
extern const unsigned long lx_symbols_count;
/* A parameter of its module and its value, or nothing. */
extern const char lx_parameter[];
/* It goes on when it touches a port that it was not granted, and reads ones. */
extern const bool lx_ones;

/* The server, ../src: something has come or is done, and frames can be sent again. */
void lx_came(void);
void lx_room(void);

#endif
