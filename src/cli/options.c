/* SPDX-License-Identifier: MIT */
/*
 * Shared options of the commands that load a model. Values are checked here, before anything is
 * loaded: a typing error costs no minute of waiting.
 */
#include "cli/options.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "codec/outside.h"
#include "pool/pool.h"
#include "pressure/options.h"

int mz_cli_wrong_use(const char *command, const char *format, ...)
{
    fprintf(stderr, "mzcache %s: ", command);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; see mzcache help %s\n", command);
    return MZ_CLI_USAGE;
}

void mz_cli_model_default(mz_cli_model *model)
{
    memset(model, 0, sizeof *model);
    mz_llm_options_default(&model->llm);
}

bool mz_cli_parse_number(const char *command, const char *what, const char *text, long least,
                         long *number)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < least || value > INT_MAX) {
        mz_cli_wrong_use(command, "%s must be a whole number of at least %ld, not \"%s\"", what,
                         least, text);
        return false;
    }
    *number = value;
    return true;
}

bool mz_cli_parse_size(const char *command, const char *what, const char *text, mz_size *size)
{
    if (!mz_size_parse(text, size)) {
        mz_cli_wrong_use(command, "%s must be a size such as 512M or 40%%, not \"%s\"", what, text);
        return false;
    }
    return true;
}

/* Everything up to the end of the stream, 0-terminated; NULL with errno set. */
static char *read_stream(FILE *stream)
{
    size_t capacity = 1u << 16, bytes = 0;
    char *text = malloc(capacity);
    while (text != NULL) {
        bytes += fread(text + bytes, 1, capacity - bytes - 1, stream);
        if (bytes < capacity - 1) {
            break;
        }
        char *larger = realloc(text, capacity * 2);
        if (larger == NULL) {
            free(text);
            return NULL;
        }
        text = larger;
        capacity *= 2;
    }
    if (text != NULL && ferror(stream)) {
        free(text);
        return NULL;
    }
    if (text != NULL) {
        text[bytes] = '\0';
    }
    return text;
}

char *mz_cli_read_text(const char *command, const char *path)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *stream = is_stdin ? stdin : fopen(path, "rb");
    char *text = stream != NULL ? read_stream(stream) : NULL;
    if (text == NULL) {
        fprintf(stderr, "mzcache %s: can't read %s: %s\n", command, path, strerror(errno));
    }
    if (stream != NULL && !is_stdin) {
        fclose(stream);
    }
    return text;
}

const char *const mz_cli_codecs[] = {"raw", "q8", "q4", "cachegen", "lossless", NULL};

bool mz_cli_take_choice(const char *command, const char *what, const char *value,
                        const char *const *choices, int *index)
{
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], value) == 0) {
            *index = i;
            return true;
        }
    }
    mz_cli_wrong_use(command, "%s can't be \"%s\"", what, value);
    return false;
}

static bool check_switch(const char *command, int option, const char *value)
{
    const char *name = option == MZ_CLI_ORDER     ? "order"
                       : option == MZ_CLI_OVERLAP ? "overlap"
                                                  : "paths";
    mz_pool_switches ignored = {0};
    mz_error error = MZ_ERROR_INIT;
    if (mz_pool_parse_switch(name, value, &ignored, &error) != MZ_OK) {
        mz_cli_wrong_use(command, "--%s", error.text);
        return false;
    }
    return true;
}

/* The name of an option about evicting by itself, and where its word belongs. */
static const char **pressure_option(int option, mz_llm_options *llm, const char **name)
{
    switch (option) {
    case MZ_CLI_PRESSURE:
        *name = "pressure";
        return &llm->pressure;
    case MZ_CLI_KEEP:
        *name = "keep";
        return &llm->keep;
    case MZ_CLI_MAX:
        *name = "max";
        return &llm->max;
    case MZ_CLI_EVICT_STEP:
        *name = "evict-step";
        return &llm->evict_step;
    default:
        *name = "idle-evict";
        return &llm->idle_evict;
    }
}

static bool take_pressure(const char *command, int option, const char *value, mz_llm_options *llm)
{
    const char *name;
    const char **word = pressure_option(option, llm, &name);
    mz_pressure_choice ignored = mz_pressure_choice_default();
    mz_error error = MZ_ERROR_INIT;
    if (mz_pressure_choice_parse(name, value, &ignored, &error) != MZ_OK) {
        mz_cli_wrong_use(command, "--%s", error.text);
        return false;
    }
    *word = value;
    return true;
}

static bool take_number(const char *command, int option, const char *value, mz_llm_options *llm)
{
    long number = 0;
    const char *what = option == 'c'              ? "--ctx"
                       : option == MZ_CLI_BATCH   ? "--batch"
                       : option == MZ_CLI_THREADS ? "--threads"
                                                  : "--restore-depth";
    if (!mz_cli_parse_number(command, what, value, 1, &number)) {
        return false;
    }
    if (option == 'c') {
        llm->context_tokens = (uint32_t)number;
    } else if (option == MZ_CLI_BATCH) {
        llm->batch_tokens = (uint32_t)number;
    } else if (option == MZ_CLI_THREADS) {
        llm->threads = (int)number;
    } else {
        llm->restore_depth = (int)number;
    }
    return true;
}

/* One of ours, or one from the library that main has loaded. */
static bool take_codec(const char *command, const char *value)
{
    int index = 0;
    const mz_codec *codec = mz_codec_find(value);
    return (codec != NULL && mz_outside_has_id(codec->id)) ||
           mz_cli_take_choice(command, "--codec", value, mz_cli_codecs, &index);
}

static bool take_text(const char *command, int option, const char *value, mz_llm_options *llm)
{
    static const char *const types[] = {"f16", "q8_0", "f32", "bf16", NULL};
    static const char *const modes[] = {"off", "on", "auto", NULL};
    int index = 0;
    switch (option) {
    case 'm':
        llm->model_path = value;
        return true;
    case MZ_CLI_STORE:
        llm->store_dir = value;
        return true;
    case MZ_CLI_PLUGIN:
        llm->plugin_path = value;
        return true;
    case MZ_CLI_CODEC:
        llm->codec = value;
        return take_codec(command, value);
    case MZ_CLI_ORDER:
        llm->order = value;
        return check_switch(command, option, value);
    case MZ_CLI_OVERLAP:
        llm->overlap = value;
        return check_switch(command, option, value);
    case MZ_CLI_PATHS:
        llm->paths = value;
        return check_switch(command, option, value);
    case MZ_CLI_TRACE:
        llm->trace = value;
        return true;
    case MZ_CLI_KV_TYPE:
        llm->kv_type = value;
        return mz_cli_take_choice(command, "--kv-type", value, types, &index);
    default:
        if (!mz_cli_take_choice(command, "--flash-attn", value, modes, &index)) {
            return false;
        }
        llm->flash_attention = index == 2 ? -1 : index;
        return true;
    }
}

bool mz_cli_take_model_option(const char *command, int option, const char *value,
                              mz_cli_model *model)
{
    switch (option) {
    case 'h':
        model->wants_help = true;
        return true;
    case MZ_CLI_JSON:
        model->json = true;
        return true;
    case MZ_CLI_STOCK:
        model->llm.stock = true;
        return true;
    case MZ_CLI_NO_MMAP:
        model->llm.no_mmap = true;
        return true;
    case 'c':
    case MZ_CLI_BATCH:
    case MZ_CLI_THREADS:
    case MZ_CLI_RESTORE_DEPTH:
        return take_number(command, option, value, &model->llm);
    case MZ_CLI_PRESSURE:
    case MZ_CLI_KEEP:
    case MZ_CLI_MAX:
    case MZ_CLI_EVICT_STEP:
    case MZ_CLI_IDLE_EVICT:
        return take_pressure(command, option, value, &model->llm);
    case 'm':
    case MZ_CLI_STORE:
    case MZ_CLI_PLUGIN:
    case MZ_CLI_CODEC:
    case MZ_CLI_ORDER:
    case MZ_CLI_OVERLAP:
    case MZ_CLI_PATHS:
    case MZ_CLI_TRACE:
    case MZ_CLI_KV_TYPE:
    case MZ_CLI_FLASH_ATTN:
        return take_text(command, option, value, &model->llm);
    default: /* getopt said what is wrong */
        fprintf(stderr, "See mzcache help %s.\n", command);
        return false;
    }
}
