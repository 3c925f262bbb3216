/* SPDX-License-Identifier: MIT */
/*
 * The options that say which model and how; run, chat and demo share them.
 *
 * A command puts MZ_CLI_MODEL_LONG into its table for getopt_long, MZ_CLI_MODEL_SHORT into its
 * short options, and gives each option that is not its own to mz_cli_take_model_option.
 */
#ifndef MZ_CLI_OPTIONS_H
#define MZ_CLI_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/size.h"
#include "mzcache/llm.h"

/* Values of long options without a letter; a command's own start at MZ_CLI_OWN. */
enum mz_cli_option {
    MZ_CLI_CODEC = 256,
    MZ_CLI_STORE,
    MZ_CLI_THREADS,
    MZ_CLI_RESTORE_DEPTH,
    MZ_CLI_BATCH,
    MZ_CLI_STOCK,
    MZ_CLI_NO_MMAP,
    MZ_CLI_KV_TYPE,
    MZ_CLI_FLASH_ATTN,
    MZ_CLI_PLUGIN,
    MZ_CLI_ORDER,
    MZ_CLI_OVERLAP,
    MZ_CLI_PATHS,
    MZ_CLI_TRACE,
    MZ_CLI_PRESSURE,
    MZ_CLI_KEEP,
    MZ_CLI_MAX,
    MZ_CLI_EVICT_STEP,
    MZ_CLI_IDLE_EVICT,
    MZ_CLI_JSON,
    MZ_CLI_OWN
};

/* Options that take a part of the pipeline away, to compare, or show what it does. */
#define MZ_CLI_SWITCHES_LONG                                                                       \
    {"order", required_argument, NULL, MZ_CLI_ORDER},                                              \
        {"overlap", required_argument, NULL, MZ_CLI_OVERLAP},                                      \
        {"paths", required_argument, NULL, MZ_CLI_PATHS},                                          \
    {                                                                                              \
        "trace", required_argument, NULL, MZ_CLI_TRACE                                             \
    }

/* Their help; what a trace holds is the command's own, so its line stands alone. */
#define MZ_CLI_COMPARE_HELP                                                                        \
    "To compare and to look inside:\n"                                                             \
    "      --order ORDER        which layers leave first: backward-out (default), forward-out,\n"  \
    "                           random-out[:SEED]\n"                                               \
    "      --overlap WHAT       of allocation, reload and prefill: all (default), alloc-reload,\n" \
    "                           reload-prefill, none\n"                                            \
    "      --paths HOW          reading and decoding: parallel (default), sequential\n"

#define MZ_CLI_SWITCHES_HELP                                                                       \
    MZ_CLI_COMPARE_HELP                                                                            \
    "      --trace FILE         write what happened when, for a trace viewer, at exit\n"

/* Options about evicting by itself. */
#define MZ_CLI_PRESSURE_LONG                                                                       \
    {"pressure", required_argument, NULL, MZ_CLI_PRESSURE},                                        \
        {"keep", required_argument, NULL, MZ_CLI_KEEP},                                            \
        {"max", required_argument, NULL, MZ_CLI_MAX},                                              \
        {"evict-step", required_argument, NULL, MZ_CLI_EVICT_STEP},                                \
    {                                                                                              \
        "idle-evict", required_argument, NULL, MZ_CLI_IDLE_EVICT                                   \
    }

#define MZ_CLI_PRESSURE_HELP                                                                       \
    "Giving memory back by itself:\n"                                                              \
    "      --pressure HOW       auto (default): when others need memory; off: only when asked\n"   \
    "      --keep SIZE          never below this (10%)\n"                                          \
    "      --max SIZE           no more than this stays between requests (off)\n"                  \
    "      --evict-step PERCENT of everything at a time: once, twice or four times this at low,\n" \
    "                           medium and critical pressure (15%)\n"                              \
    "      --idle-evict TIME    all above --keep after so long without work: 60s, 5m (off)\n"

#define MZ_CLI_MODEL_SHORT "hm:c:"
#define MZ_CLI_MODEL_LONG                                                                          \
    {"help", no_argument, NULL, 'h'}, {"model", required_argument, NULL, 'm'},                     \
        {"ctx", required_argument, NULL, 'c'}, {"codec", required_argument, NULL, MZ_CLI_CODEC},   \
        {"store", required_argument, NULL, MZ_CLI_STORE},                                          \
        {"threads", required_argument, NULL, MZ_CLI_THREADS},                                      \
        {"restore-depth", required_argument, NULL, MZ_CLI_RESTORE_DEPTH},                          \
        {"batch", required_argument, NULL, MZ_CLI_BATCH},                                          \
        {"stock", no_argument, NULL, MZ_CLI_STOCK},                                                \
        {"no-mmap", no_argument, NULL, MZ_CLI_NO_MMAP},                                            \
        {"kv-type", required_argument, NULL, MZ_CLI_KV_TYPE},                                      \
        {"flash-attn", required_argument, NULL, MZ_CLI_FLASH_ATTN},                                \
        {"plugin", required_argument, NULL, MZ_CLI_PLUGIN}, MZ_CLI_PRESSURE_LONG,                  \
        MZ_CLI_SWITCHES_LONG,                                                                      \
    {                                                                                              \
        "json", no_argument, NULL, MZ_CLI_JSON                                                     \
    }

/*
 * The page of help for them, in parts: a command leaves out what it refuses and says itself what
 * means something else to it.
 */
#define MZ_CLI_FILE_HELP "  -m, --model FILE         GGUF file (required)\n"
#define MZ_CLI_CTX_HELP "  -c, --ctx TOKENS         size of the KV cache (the model's own)\n"
#define MZ_CLI_ENGINE_HELP                                                                         \
    "      --codec NAME         raw: exact, to flash (default); q8: 8 bit, kept in memory;\n"      \
    "                           q4: 4 bit, cachegen: about 4 bit, entropy coded, both to\n"        \
    "                           be tried with your model first; lossless: exact, kept in\n"        \
    "                           memory, saves little; or one of the library that\n"                \
    "                           MZCACHE_CODEC_LIBRARY names\n"                                     \
    "      --store DIR          where the store lies (~/.cache/mzcache)\n"                         \
    "      --threads N          compute threads (one per core)\n"                                  \
    "      --restore-depth N    reads under way in a restore (chosen by the library)\n"            \
    "      --batch TOKENS       tokens per prefill step (512)\n"                                   \
    "      --kv-type TYPE       f16 (default), q8_0, f32, bf16\n"                                  \
    "      --flash-attn MODE    on, off, auto (default)\n"                                         \
    "      --no-mmap            read the weights instead of mapping them\n"                        \
    "      --plugin FILE        libggml-mzcache.so (the one beside the library)\n"                 \
    "      --json               JSON lines instead of text\n"
#define MZ_CLI_STOCK_HELP                                                                          \
    "      --stock              the bare engine, without mzCache, to compare with\n"
#define MZ_CLI_MODEL_HELP                                                                          \
    MZ_CLI_FILE_HELP MZ_CLI_CTX_HELP MZ_CLI_ENGINE_HELP MZ_CLI_STOCK_HELP MZ_CLI_PRESSURE_HELP     \
        MZ_CLI_SWITCHES_HELP

typedef struct mz_cli_model {
    mz_llm_options llm; /* texts point into argv */
    bool wants_help;
    bool json;
} mz_cli_model;

void mz_cli_model_default(mz_cli_model *model);

/* Returns false, having said why on stderr, if the option is wrong or unknown. */
bool mz_cli_take_model_option(const char *command, int option, const char *value,
                              mz_cli_model *model);

/* What --codec may say; NULL-terminated. lz4 and zstd are codecs to compare with, not to use. */
extern const char *const mz_cli_codecs[];

/* Which of the NULL-terminated choices a value is; false, having said so on stderr, for another. */
bool mz_cli_take_choice(const char *command, const char *what, const char *value,
                        const char *const *choices, int *index);

/* A whole number of at least `least`; false, having said so on stderr, for anything else. */
bool mz_cli_parse_number(const char *command, const char *what, const char *text, long least,
                         long *number);

/* A size; false, having said so on stderr. */
bool mz_cli_parse_size(const char *command, const char *what, const char *text, mz_size *size);

/* A whole text file (-: standard input), to be freed; NULL, having said why on stderr. */
char *mz_cli_read_text(const char *command, const char *path);

/* Say what is wrong and where the help is. Returns MZ_CLI_USAGE. */
int mz_cli_wrong_use(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
