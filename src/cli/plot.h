/* SPDX-License-Identifier: MIT */
/*
 * Drawing by gnuplot, for `mzcache plot`.
 *
 * A *mz_plot* is one figure: a script that is written piece by piece and run twice, for SVG and for
 * PNG. gnuplot gets it by its standard input, so that no shell sees a name.
 */
#ifndef MZ_CLI_PLOT_H
#define MZ_CLI_PLOT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct mz_plot {
    FILE *script; /* where the figure's gnuplot commands go; NULL: no memory */
    char *text;
    size_t bytes;
} mz_plot;

/* Begin a figure. Write its commands to plot->script: everything but terminal and output. */
bool mz_plot_begin(mz_plot *plot);

/* A text as gnuplot reads it between double quotes, without its escapes and its markup. */
void mz_plot_text(const mz_plot *plot, const char *text);

/*
 * Draw it into directory/name.svg and directory/name.png, `width` by `height` points, and release
 * it. False, having said why on stderr, if gnuplot is missing or refuses.
 */
bool mz_plot_end(mz_plot *plot, const char *directory, const char *name, int width, int height);

#endif
