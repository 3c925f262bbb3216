/* SPDX-License-Identifier: MIT */
/*
 * mzcache plot: the paper's tables and figures from what `mzcache bench --json` printed.
 *
 * Each suite's lines lie in DIR under the suite's name, as `make bench` puts them there. A suite
 * that draws has one entry in a table below; what is missing in DIR is left out. The page that shows
 * all figures names them by relative paths, so the folder can be moved and read offline.
 */
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/plot.h"

#define COMMAND "plot"

static const char help[] =
    "Usage: mzcache plot DIR\n\n"
    "Draw the paper's tables and figures from the results in DIR, which `mzcache bench SUITE --json`\n"
    "printed into DIR/SUITE.json, as SVG and PNG, and make DIR/index.html, a page with all of them.\n"
    "Needs gnuplot.\n\n"
    "  codecs.json   Table 2, which is printed too, and Figure 14, one for each model\n"
    "\nExit codes: 0 done, 1 failed, 2 wrong use.\n";

typedef struct results {
    const char *directory;
    json_t *lines; /* array of the suite's lines */
    FILE *page;
} results;

/* --- what lines say --- */

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text != NULL ? text : "";
}

static bool has(const json_t *line, const char *key)
{
    return json_is_number(json_object_get(line, key));
}

static double number_of(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key));
}

/* The line of a codec for a model; NULL if there is none. */
static const json_t *find(const results *r, const char *model, const char *codec)
{
    size_t i;
    const json_t *line;
    json_array_foreach(r->lines, i, line)
    {
        if (strcmp(text_of(line, "model"), model) == 0 &&
            strcmp(text_of(line, "codec"), codec) == 0) {
            return line;
        }
    }
    return NULL;
}

/* Whether a line is the first one of its model. */
static bool is_first(const results *r, size_t index)
{
    const char *model = text_of(json_array_get(r->lines, index), "model");
    for (size_t i = 0; i < index; i++) {
        if (strcmp(text_of(json_array_get(r->lines, i), "model"), model) == 0) {
            return false;
        }
    }
    return *model != '\0';
}

static void page_text(const results *r, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", r->page);
            break;
        case '&':
            fputs("&amp;", r->page);
            break;
        case '"':
            fputs("&quot;", r->page);
            break;
        default:
            fputc(*text, r->page);
        }
    }
}

static void page_machine(const results *r)
{
    const json_t *machine = json_array_get(r->lines, 0);
    fputs("<p>", r->page);
    page_text(r, text_of(machine, "cpu"));
    fprintf(r->page, ", %.0f cores, ", number_of(machine, "cores"));
    page_text(r, text_of(machine, "disk"));
    fprintf(r->page, ", load %.1f, medians of %.0f.</p>\n", number_of(machine, "load"),
            number_of(machine, "repeats"));
}

/* --- codecs: Table 2 and Figure 14 --- */

static void table2_row(const results *r, const char *model, double tokens)
{
    const json_t *lz4 = find(r, model, "lz4"), *zstd = find(r, model, "zstd");
    if (lz4 == NULL || zstd == NULL) {
        return;
    }
    printf("%-34s %8.0f %8.1f %8.1f\n", model, tokens, number_of(lz4, "saved_percent"),
           number_of(zstd, "saved_percent"));
    fputs("<tr><td>", r->page);
    page_text(r, model);
    fprintf(r->page, "<td>%.0f<td>%.1f %%<td>%.1f %%</tr>\n", tokens,
            number_of(lz4, "saved_percent"), number_of(zstd, "saved_percent"));
}

static void table2(const results *r)
{
    static const char title[] = "Table 2: KV space saved by lz4 and zstd, as zRAM uses them";
    printf("%s\n%-34s %8s %8s %8s\n", title, "model", "tokens", "lz4 %", "zstd %");
    fprintf(r->page, "<h2>%s</h2>\n<table><tr><th>model<th>tokens<th>lz4<th>zstd</tr>\n", title);
    for (size_t i = 0; i < json_array_size(r->lines); i++) {
        const json_t *line = json_array_get(r->lines, i);
        if (is_first(r, i)) {
            table2_row(r, text_of(line, "model"), number_of(line, "context_tokens"));
        }
    }
    fputs("</table>\n", r->page);
}

static void figure14_value(const mz_plot *plot, const json_t *line, const char *key)
{
    if (has(line, key)) {
        fprintf(plot->script, " %g", number_of(line, key));
    } else {
        fputs(" NaN", plot->script);
    }
}

/* A row for each codec in use: name, saved, TTFT at 50 and 0 %, F1. Whether any has an F1. */
static bool figure14_rows(const results *r, const mz_plot *plot, const char *model)
{
    size_t i;
    const json_t *line;
    bool has_f1 = false;
    fputs("$codecs << END_OF_ROWS\n", plot->script);
    json_array_foreach(r->lines, i, line)
    {
        if (strcmp(text_of(line, "model"), model) != 0 || !has(line, "ttft_half_ms")) {
            continue;
        }
        fputc('"', plot->script);
        mz_plot_text(plot, text_of(line, "codec"));
        fputc('"', plot->script);
        figure14_value(plot, line, "saved_percent");
        figure14_value(plot, line, "ttft_half_ms");
        figure14_value(plot, line, "ttft_none_ms");
        figure14_value(plot, line, "f1");
        fputc('\n', plot->script);
        has_f1 = has_f1 || has(line, "f1");
    }
    fputs("END_OF_ROWS\n", plot->script);
    return has_f1;
}

/* File name of a model's figure: its name without what file systems and pages dislike. */
static void figure14_name(const char *model, char *name, size_t capacity)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t used = (size_t)snprintf(name, capacity, "figure-14-");
    for (; *model != '\0' && strcmp(model, ".gguf") != 0 && used + 1 < capacity; model++) {
        name[used++] = strchr(plain, *model) != NULL ? *model : '-';
    }
    name[used] = '\0';
}

static bool figure14(const results *r, const char *model, double tokens)
{
    mz_plot plot;
    char name[128];
    if (!mz_plot_begin(&plot)) {
        return false;
    }
    bool has_f1 = figure14_rows(r, &plot, model);
    double resident = number_of(find(r, model, "raw"), "resident_ms");
    fprintf(plot.script, "set multiplot layout 1,%d title \"", has_f1 ? 3 : 2);
    mz_plot_text(&plot, model);
    fprintf(plot.script,
            ", %.0f tokens of context\" noenhanced\n"
            "set style data histograms\nset style histogram clustered gap 1\n"
            "set style fill solid 0.85 noborder\nset boxwidth 0.9\n"
            "set grid ytics lc rgb '#dddddd'\nset border 3\nset tics nomirror out\n"
            "set xtics noenhanced\nset yrange [0:*]\nset offsets 0,0,graph 0.12,0\n"
            "set linetype 1 lc rgb '#3b6ea5'\nset linetype 2 lc rgb '#d98032'\n"
            "set title 'space saved'\nset ylabel '%%'\n"
            "plot $codecs using 2:xtic(1) notitle lt 1\n"
            "set title 'time to the first token'\nset ylabel 'ms'\n"
            "set key top left vertical Left reverse samplen 2\nset offsets 0,0,graph 0.5,0\n"
            "plot $codecs using 3:xtic(1) title '50 %% left' lt 1, '' using 4 title '0 %% left' lt 2, "
            "%g with lines lc rgb '#555555' dt 2 title 'resident'\n",
            tokens, resident);
    if (has_f1) {
        fputs("set title 'F1'\nunset ylabel\nunset key\nset yrange [0:1]\nset offsets 0,0,0,0\n"
              "plot $codecs using 5:xtic(1) notitle lt 1\n",
              plot.script);
    }
    fputs("unset multiplot\n", plot.script);
    figure14_name(model, name, sizeof name);
    fputs("<h2>Figure 14: codecs compared, ", r->page);
    page_text(r, model);
    fprintf(r->page, "</h2>\n<img src=\"%s.svg\" alt=\"%s\">\n", name, name);
    return mz_plot_end(&plot, r->directory, name, has_f1 ? 1080 : 760, 340);
}

static bool draw_codecs(const results *r)
{
    bool is_done = true;
    page_machine(r);
    table2(r);
    for (size_t i = 0; i < json_array_size(r->lines) && is_done; i++) {
        const json_t *line = json_array_get(r->lines, i);
        if (is_first(r, i)) {
            is_done = figure14(r, text_of(line, "model"), number_of(line, "context_tokens"));
        }
    }
    return is_done;
}

/* --- all suites --- */

static const struct {
    const char *suite;
    bool (*draw)(const results *r);
} suites[] = {{"codecs", draw_codecs}};
#define SUITES (sizeof suites / sizeof suites[0])

/* The lines of DIR/SUITE.json, an array; NULL if there is no such file, or having said why. */
static json_t *load(const char *directory, const char *suite, bool *is_bad)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.json", directory, suite);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return NULL;
    }
    json_t *lines = json_array(), *line;
    json_error_t reason;
    while (lines != NULL && (line = json_loadf(file, JSON_DISABLE_EOF_CHECK, &reason)) != NULL) {
        if (json_array_append_new(lines, line) != 0 || !json_is_object(line)) {
            break;
        }
    }
    if (!feof(file) || json_array_size(lines) == 0) {
        fprintf(stderr, "mzcache " COMMAND ": %s is no output of mzcache bench --json\n", path);
        *is_bad = true;
        json_decref(lines);
        lines = NULL;
    }
    fclose(file);
    return lines;
}

static FILE *begin_page(const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/index.html", directory);
    FILE *page = fopen(path, "w");
    if (page == NULL) {
        fprintf(stderr, "mzcache " COMMAND ": can't write %s\n", path);
        return NULL;
    }
    fputs("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>mzCache: results</title>\n"
          "<style>body{font:16px sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
          "td,th{padding:.2em 1em .2em 0;text-align:left}img{max-width:100%}</style>\n"
          "<h1>mzCache: results</h1>\n",
          page);
    return page;
}

static int draw_all(const char *directory)
{
    bool is_done = true, is_bad = false;
    size_t drawn = 0;
    FILE *page = begin_page(directory);
    for (size_t i = 0; i < SUITES && page != NULL && is_done; i++) {
        results r = {directory, load(directory, suites[i].suite, &is_bad), page};
        is_done = !is_bad && (r.lines == NULL || suites[i].draw(&r));
        drawn += r.lines != NULL ? 1 : 0;
        json_decref(r.lines);
    }
    if (page == NULL || fclose(page) != 0 || !is_done) {
        return MZ_CLI_FAILED;
    }
    if (drawn == 0) {
        fprintf(stderr, "mzcache " COMMAND ": no results in %s\n", directory);
        return MZ_CLI_FAILED;
    }
    return MZ_CLI_OK;
}

int mz_cli_plot(int argc, char **argv)
{
    static const struct option table[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        if (option != 'h') {
            fprintf(stderr, "See mzcache help " COMMAND ".\n");
            return MZ_CLI_USAGE;
        }
        fputs(help, stdout);
        return MZ_CLI_OK;
    }
    if (argc - optind != 1) {
        return mz_cli_wrong_use(COMMAND, "one folder with results is needed");
    }
    return draw_all(argv[optind]);
}
