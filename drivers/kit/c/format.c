/* C's format strings, for the log and the end of a driver: Rust cannot receive calls with a variable number of
 * arguments.
 *
 * SPDX-License-Identifier: MIT */
#include <stdarg.h>

#include "osenv.h"

/* ../src/log.rs */
void osenv_log_text(int priority, const char *line, oskit_size_t length);
_Noreturn void osenv_panic_text(const char *line, oskit_size_t length);

/* What goes into a buffer, and how long it would be. */
struct output {
    char *to;
    oskit_size_t size, length;
};

static void put(struct output *out, char c)
{
    if (out->length + 1 < out->size)
        out->to[out->length] = c;
    out->length++;
}

static void pad(struct output *out, long count, char c)
{
    while (count-- > 0)
        put(out, c);
}

/* How a value is shown. */
struct shape {
    int left, zero, plus, space, alternate, upper;
    long width, precision;
};

static void text(struct output *out, const char *s, struct shape *f)
{
    long length = 0;

    if (!s)
        s = "(null)";
    while ((f->precision < 0 || length < f->precision) && s[length])
        length++;
    if (!f->left)
        pad(out, f->width - length, ' ');
    for (long i = 0; i < length; i++)
        put(out, s[i]);
    if (f->left)
        pad(out, f->width - length, ' ');
}

static void number(struct output *out, unsigned long value, char sign, unsigned base, struct shape *f)
{
    char digits[24];
    const char *prefix = f->alternate && base == 16 ? (f->upper ? "0X" : "0x") : f->alternate && base == 8 ? "0" : "";
    long count = 0, length;

    do
        digits[count++] = (f->upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % base];
    while (value /= base);
    length = count > f->precision ? count : f->precision;
    for (const char *p = prefix; *p; p++)
        length++;
    length += sign != 0;
    if (!f->left && !f->zero)
        pad(out, f->width - length, ' ');
    if (sign)
        put(out, sign);
    while (*prefix)
        put(out, *prefix++);
    if (!f->left && f->zero)
        pad(out, f->width - length, '0');
    pad(out, f->precision - count, '0');
    while (count)
        put(out, digits[--count]);
    if (f->left)
        pad(out, f->width - length, ' ');
}

static void address(struct output *out, const unsigned char *bytes)
{
    struct shape two = {.precision = 2};

    for (int i = 0; i < 6; i++) {
        if (i)
            put(out, ':');
        number(out, bytes[i], 0, 16, &two);
    }
}

/* A value of the list, by its length in bytes. */
#define VALUE(list, bytes) ((bytes) == 8 ? va_arg(list, unsigned long) : va_arg(list, unsigned))

int osenv_vformat(char *to, oskit_size_t size, const char *format, va_list list)
{
    struct output out = {to, size, 0};

    for (; *format; format++) {
        struct shape f = {.precision = -1};
        int bytes = 4, flags = 1;
        unsigned long value;
        char sign = 0;

        if (*format != '%') {
            put(&out, *format);
            continue;
        }
        while (flags)
            switch (*++format) {
            case '-': f.left = 1; break;
            case '0': f.zero = 1; break;
            case '+': f.plus = 1; break;
            case ' ': f.space = 1; break;
            case '#': f.alternate = 1; break;
            default: flags = 0;
            }
        if (*format == '*') {
            f.width = va_arg(list, int);
            if (f.width < 0) {
                f.left = 1;
                f.width = -f.width;
            }
            format++;
        } else
            while (*format >= '0' && *format <= '9')
                f.width = f.width * 10 + *format++ - '0';
        if (*format == '.') {
            f.precision = 0;
            if (*++format == '*') {
                f.precision = va_arg(list, int);
                format++;
            } else
                while (*format >= '0' && *format <= '9')
                    f.precision = f.precision * 10 + *format++ - '0';
        }
        for (; *format == 'l' || *format == 'h' || *format == 'z' || *format == 't'; format++)
            bytes = *format == 'h' ? bytes / 2 : 8;
        switch (*format) {
        case 'c':
            put(&out, (char)va_arg(list, int));
            break;
        case 's':
            text(&out, va_arg(list, const char *), &f);
            break;
        case 'p':
            if (format[1] == 'M') {
                format++;
                address(&out, va_arg(list, const unsigned char *));
                break;
            }
            f.alternate = 1;
            number(&out, va_arg(list, unsigned long), 0, 16, &f);
            break;
        case 'd':
        case 'i': {
            long n = bytes == 8 ? va_arg(list, long) : va_arg(list, int);

            n = bytes == 2 ? (short)n : bytes == 1 ? (signed char)n : n;
            sign = n < 0 ? '-' : f.plus ? '+' : f.space ? ' ' : 0;
            number(&out, n < 0 ? -(unsigned long)n : (unsigned long)n, sign, 10, &f);
            break;
        }
        case 'u':
        case 'o':
        case 'x':
        case 'X':
            value = VALUE(list, bytes);
            value = bytes == 2 ? (unsigned short)value : bytes == 1 ? (unsigned char)value : value;
            f.upper = *format == 'X';
            number(&out, value, 0, *format == 'u' ? 10 : *format == 'o' ? 8 : 16, &f);
            break;
        case '%':
            put(&out, '%');
            break;
        case 0:
            format--;
            break;
        default:
            /* A conversion that is not known: the list may have no value for it. */
            put(&out, '%');
            put(&out, *format);
        }
    }
    if (size)
        to[out.length < size ? out.length : size - 1] = 0;
    return (int)out.length;
}

/* Bytes of a line; a longer line is cut. */
#define LINE 256

static oskit_size_t line(char *to, const char *format, va_list list)
{
    int length = osenv_vformat(to, LINE, format, list);

    return length < LINE ? (oskit_size_t)length : LINE - 1;
}

void osenv_vlog(int priority, const char *format, void *list)
{
    char text[LINE];

    osenv_log_text(priority, text, line(text, format, *(va_list *)list));
}

void osenv_log(int priority, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    osenv_vlog(priority, format, &list);
    va_end(list);
}

void osenv_vpanic(const char *format, void *list)
{
    char text[LINE];

    osenv_panic_text(text, line(text, format, *(va_list *)list));
}

void osenv_panic(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    osenv_vpanic(format, &list);
}
