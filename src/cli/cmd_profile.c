/* SPDX-License-Identifier: MIT */
/*
 * mzcache profile: measure this machine once, so that evictions are balanced for it.
 *
 * The table is what a person reads, the JSON under the cache directory is what pools read when they
 * are created.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/probe.h"
#include "profile/background.h"
#include "profile/measure.h"

#define COMMAND "profile"

static const char help[] =
    "Usage: mzcache profile [--store DIR] [--quick] [--if-missing] [--json]\n\n"
    "Measure storage, page allocation and codecs of this machine, print them, and keep them for\n"
    "the pools created from now on. Takes about 25 seconds and 1 GiB of free disk. Pools without "
    "a\n"
    "record have it made by --quick --if-missing after their first eviction, and again when it is\n"
    "a day old. Quick records add up: of each rate the better one stays. What was measured in "
    "full\n"
    "is replaced only by what is measured in full.\n\n"
    "      --store DIR   directory of the store (~/.cache/mzcache)\n"
    "      --quick       in about 2 seconds, with 128 MiB\n"
    "      --if-missing  do nothing if there is a record, unless a quick one of yesterday or\n"
    "                    before, or if somebody is measuring now\n"
    "      --json        one JSON line for each measurement\n\n"
    "Exit codes: 0 done, 1 failed, 2 wrong use.\n";

typedef struct settings {
    const char *store;
    bool quick, if_missing, json, wants_help;
} settings;

static bool parse(int argc, char **argv, settings *s)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},  {"store", required_argument, NULL, 's'},
        {"quick", no_argument, NULL, 'q'}, {"if-missing", no_argument, NULL, 'i'},
        {"json", no_argument, NULL, 'j'},  {NULL, 0, NULL, 0}};
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'h':
            s->wants_help = true;
            break;
        case 's':
            s->store = optarg;
            break;
        case 'q':
            s->quick = true;
            break;
        case 'i':
            s->if_missing = true;
            break;
        case 'j':
            s->json = true;
            break;
        default:
            return false;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "mzcache " COMMAND ": \"%s\" is not expected\n", argv[optind]);
        return false;
    }
    return true;
}

static void show_progress(void *context, const char *what, double share)
{
    mz_cli_progress_update(context, what, (uint64_t)(share * 100), 100, "%");
}

static double gb(double bytes_per_s)
{
    return bytes_per_s / 1e9;
}

static void print_reads(const mz_profile_record *record)
{
    printf("\nDirect reads, GB/s by request size and requests under way%s\n",
           record->direct ? "" : " (this file system refuses direct I/O: through the page cache)");
    uint32_t depths[8];
    uint32_t depth_count = 0;
    for (uint32_t i = 0; i < record->read_count; i++) {
        bool known = false;
        for (uint32_t k = 0; k < depth_count; k++) {
            known = known || depths[k] == record->reads[i].depth;
        }
        if (!known && depth_count < 8) {
            depths[depth_count++] = record->reads[i].depth;
        }
    }
    printf("  %-10s", "");
    for (uint32_t k = 0; k < depth_count; k++) {
        printf("%8u", depths[k]);
    }
    uint32_t row = 0;
    for (uint32_t i = 0; i < record->read_count; i++) {
        const mz_profile_read *r = &record->reads[i];
        if (r->request_bytes != row) {
            char text[32];
            row = r->request_bytes;
            printf("\n  %-10s", mz_size_format(row, text, sizeof text));
        }
        printf("%8.2f", gb(r->bytes_per_s));
    }
    char text[32];
    printf("\n  saturated by %s at depth %u\n",
           mz_size_format(record->knee_request_bytes, text, sizeof text), record->knee_depth);
    printf("Writes, 4 MiB at depth 4: %.2f GB/s\n", gb(record->write_bytes_per_s));
}

static void print_table(const mz_profile_record *record, const char *path)
{
    const mz_profile_pages *p = &record->pages;
    printf("%s, %u cores\n", record->cpu, record->cores);
    print_reads(record);
    printf("\nAllocating pages, GB/s       1 thread  %u threads\n", record->cores);
    printf("  4 KiB pages                %8.2f  %8.2f\n", gb(p->small_bytes_per_s),
           gb(p->small_all_bytes_per_s));
    printf("  huge pages                 %8.2f  %8.2f\n", gb(p->huge_bytes_per_s),
           gb(p->huge_all_bytes_per_s));
    printf("\nCodecs, GB/s of f16            encode    decode   (memcpy, one thread: %.2f)\n",
           gb(record->memcpy_bytes_per_s));
    for (uint32_t i = 0; i < record->codec_count; i++) {
        const mz_profile_codec *c = &record->codecs[i];
        printf("  %-8s %-8s %2u thread%-1s  %8.2f  %8.2f\n", c->codec, c->variant, c->threads,
               c->threads == 1 ? "" : "s", gb(c->encode_bytes_per_s), gb(c->decode_bytes_per_s));
    }
    printf("\nkept in %s\n", path);
}

static void print_lines(const mz_profile_record *record, const char *path)
{
    for (uint32_t i = 0; i < record->read_count; i++) {
        const mz_profile_read *r = &record->reads[i];
        mz_cli_print_json(json_pack("{s:s, s:I, s:I, s:f}", "measure", "read", "request_bytes",
                                    (json_int_t)r->request_bytes, "depth", (json_int_t)r->depth,
                                    "gbps", gb(r->bytes_per_s)));
    }
    mz_cli_print_json(
        json_pack("{s:s, s:f}", "measure", "write", "gbps", gb(record->write_bytes_per_s)));
    const mz_profile_pages *p = &record->pages;
    mz_cli_print_json(json_pack("{s:s, s:f, s:f, s:f, s:f}", "measure", "pages", "small_gbps",
                                gb(p->small_bytes_per_s), "huge_gbps", gb(p->huge_bytes_per_s),
                                "small_all_gbps", gb(p->small_all_bytes_per_s), "huge_all_gbps",
                                gb(p->huge_all_bytes_per_s)));
    for (uint32_t i = 0; i < record->codec_count; i++) {
        const mz_profile_codec *c = &record->codecs[i];
        mz_cli_print_json(
            json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "measure", "codec", "codec", c->codec,
                      "variant", c->variant, "threads", (json_int_t)c->threads, "encode_gbps",
                      gb(c->encode_bytes_per_s), "decode_gbps", gb(c->decode_bytes_per_s),
                      "memcpy_gbps", gb(record->memcpy_bytes_per_s)));
    }
    mz_cli_print_json(json_pack("{s:s, s:s, s:I, s:b, s:I, s:I, s:s}", "measure", "summary", "cpu",
                                record->cpu, "cores", (json_int_t)record->cores, "direct",
                                record->direct, "knee_request_bytes",
                                (json_int_t)record->knee_request_bytes, "knee_depth",
                                (json_int_t)record->knee_depth, "path", path));
}

static mz_status measure_and_save(const settings *s, const char *directory, const char *path,
                                  mz_profile_record *record, mz_error *error)
{
    mz_cli_progress progress;
    mz_cli_progress_init(&progress);
    mz_cli_progress_begin(&progress, true, "measuring");
    mz_profile_options options = {directory, s->quick, show_progress, &progress};
    mz_status status = mz_profile_measure(mz_os_linux(), &options, record, error);
    mz_cli_progress_end(&progress);
    mz_profile_record older;
    mz_error none = MZ_ERROR_INIT;
    if (status != MZ_OK) {
        return status;
    }
    if (record->quick && mz_profile_find(directory, &older, &none) == MZ_OK) {
        if (!older.quick) {
            fprintf(stderr, "mzcache " COMMAND ": the record stays the one measured in full\n");
            return MZ_OK;
        }
        mz_profile_keep_better(record, &older);
    }
    return mz_profile_save(record, path, error);
}

/*
 * Measure, alone among all processes that would measure the same. *measured: not done if it was
 * only wanted if missing.
 */
static mz_status measure_alone(const settings *s, const char *directory, const char *path,
                               mz_profile_record *record, bool *measured, mz_error *error)
{
    int lock = -1;
    mz_error ignored = MZ_ERROR_INIT;
    mz_status status = mz_profile_lock(path, false, &lock, error);
    *measured = false;
    if (status == MZ_E_BUSY && s->if_missing) {
        return MZ_OK;
    }
    if (status == MZ_E_BUSY) {
        fprintf(stderr, "mzcache " COMMAND ": another process is measuring; waiting for it\n");
        status = mz_profile_lock(path, true, &lock, error);
    }
    if (status != MZ_OK) {
        return status;
    }
    if (!s->if_missing || mz_profile_find(directory, record, &ignored) != MZ_OK ||
        mz_profile_is_stale(record, (uint64_t)time(NULL))) {
        status = measure_and_save(s, directory, path, record, error);
        *measured = status == MZ_OK;
    }
    close(lock);
    return status;
}

int mz_cli_profile(int argc, char **argv)
{
    settings s = {0};
    if (!parse(argc, argv, &s)) {
        fputs(help, stderr);
        return MZ_CLI_USAGE;
    }
    if (s.wants_help) {
        fputs(help, stdout);
        return MZ_CLI_OK;
    }
    char found[512];
    const char *directory = s.store;
    if (directory == NULL) {
        mz_probe_default_store(found, sizeof found);
        mz_probe_store store;
        mz_probe_store_dir(found, &store); /* makes the default directory if it is missing */
        directory = found;
    }
    mz_profile_record record;
    mz_error error = MZ_ERROR_INIT;
    char path[4096];
    bool measured = false;
    mz_status status = mz_profile_path(directory, path, sizeof path, &error);
    if (status == MZ_OK) {
        status = measure_alone(&s, directory, path, &record, &measured, &error);
    }
    if (status != MZ_OK) {
        fprintf(stderr, "mzcache " COMMAND ": %s\n", error.text);
        return MZ_CLI_FAILED;
    }
    if (!measured) {
        return MZ_CLI_OK;
    }
    if (s.json) {
        print_lines(&record, path);
    } else {
        print_table(&record, path);
    }
    return MZ_CLI_OK;
}
